#include "prefetch/object/s3/whole_object.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "prefetch/object/s3/digest.h"

namespace cube::s3 {
namespace {

// The state of one fetch. It lives as long as any request refers to it.
class WholeFetch : public std::enable_shared_from_this<WholeFetch> {
 public:
  WholeFetch(Client& client, std::string bucket, std::string key, std::shared_ptr<ObjectSink> sink,
             WholeOptions options, Done done)
      : client_(client),
        bucket_(std::move(bucket)),
        key_(std::move(key)),
        sink_(std::move(sink)),
        options_(std::move(options)),
        done_(std::move(done)) {}

  void start() {
    next_ = hashed_ = 0;
    has_begun_ = has_print_ = false;
    md5_ = std::make_unique<Md5>();
    if (options_.version) {
      has_begun_ = true;
      total_.size = options_.version->size;
      total_.modified = options_.version->modified;
      total_.etag = options_.version->etag;
      total_.error = sink_->begin(total_);
      return start_ranges();
    }
    client_.get({.bucket = bucket_,
                 .key = key_,
                 .begin =
                     [this](const Outcome& head, Transfer::Room& room) {
                       return head.is_size_known ? begin(head, room) : 0;
                     },
                 .may_be_cut = true},
                [self = shared_from_this()](Outcome& outcome) { self->end_first(outcome); });
  }

 private:
  bool is_same_version(const Outcome& head) const {
    return head.etag == total_.etag && head.size == total_.size;
  }

  // Called with the head of the first or a later attempt.
  int begin(const Outcome& head, Transfer::Room& room) {
    bool is_first = !std::exchange(has_begun_, true);
    if (!is_first && !is_same_version(head)) {
      if (total_.size > options_.range_bytes) return ESTALE;
      is_first = true;  // no other range is in flight
    }
    if (is_first) {
      total_.size = head.size;
      total_.etag = head.etag;
      total_.has_weak_etag = head.has_weak_etag;
      total_.modified = head.modified;
      next_ = std::min(head.size, options_.range_bytes);
      running_.insert(0);
      if (const int error = sink_->begin(total_); error != 0) return error;
      first_room_ = {sink_->room(0, next_), next_};
      start_ranges();
    }
    room = first_room_;
    return 0;
  }

  void end_first(Outcome& outcome) {
    // If the body has an unknown length or is empty, begin() was not called for it. Then the room
    // can have bytes of an attempt that failed.
    const std::string& body = outcome.http.body;
    if (outcome.error == 0 && (!outcome.is_size_known || outcome.size == 0)) {
      Transfer::Room room;
      outcome.size = body.size();
      outcome.error = begin(outcome, room);
      if (outcome.error == 0 && !body.empty())
        std::memcpy(room.at, body.data(), std::min(body.size(), room.bytes));
    }
    running_.erase(0);
    if (outcome.error == 0) outcome.error = sink_->take(0, first_room_.bytes);
    note_end(outcome);
    start_ranges();
  }

  void note_end(Outcome& outcome) {
    total_.answers += outcome.answers;
    total_.received += outcome.received;
    total_.ignores_range |= outcome.ignores_range;
    if (outcome.error != 0) return note_error(outcome);
    if (!std::exchange(has_print_, true)) print_ = Fingerprint(outcome.http, outcome.etag);
    if (print_.md5().empty()) return;
    const std::uint64_t end = running_.empty() ? next_ : *running_.begin();
    hash_until(end);
  }

  void hash_until(std::uint64_t end) {
    if (const std::byte* const at = sink_->kept(hashed_); at != nullptr && end > hashed_)
      md5_->add({reinterpret_cast<const char*>(at), end - hashed_});
    hashed_ = end;
  }

  // Returns true if the whole object matches its checksum. The client has already checked an object
  // that arrived in a single answer.
  bool is_intact() {
    const std::byte* const at = total_.size != 0 ? sink_->kept(0) : nullptr;
    if (at == nullptr || !has_print_ || (!options_.version && total_.size <= options_.range_bytes))
      return true;
    if (!print_.md5().empty()) {
      hash_until(total_.size);  // the sink already had the last ranges
      return hex(md5_->digest()) == print_.md5();
    }
    return print_.is_of({reinterpret_cast<const char*>(at), total_.size});
  }

  void conclude() {
    if (total_.error == 0 && !is_intact()) {
      if (++attempts_ < k_attempts) return start();
      total_.error = EIO;
      total_.kind = "damaged";
      total_.trouble =
          "s3://" + bucket_ + "/" + key_ + ": the bytes do not match the checksum of the store";
    }
    done_(total_);
  }

  void note_error(Outcome& outcome) {
    if (outcome.error == 0 || total_.error != 0) return;
    total_.error = outcome.error;
    total_.trouble = std::move(outcome.trouble);
    total_.kind = std::move(outcome.kind);
  }

  // Returns the end of the ranges that may be requested now.
  std::uint64_t end_of_window() const {
    if (total_.error != 0) return next_;
    const std::uint64_t lowest = running_.empty() ? next_ : *running_.begin();
    return std::min(total_.size, lowest + options_.in_flight * options_.range_bytes);
  }

  void start_ranges() {
    // The window moves on if the sink has its ranges.
    while (next_ < end_of_window()) {
      const std::uint64_t first = next_;
      const auto bytes =
          static_cast<std::size_t>(std::min(options_.range_bytes, total_.size - first));
      next_ += bytes;
      // After damage, fetches even ranges that are present, because these bytes might be the
      // damaged ones.
      if (attempts_ == 0 && sink_->has(first, bytes)) continue;
      running_.insert(first);
      client_.get({.bucket = bucket_,
                   .key = key_,
                   .begin =
                       [this, at = sink_->room(first, bytes), bytes](const Outcome& head,
                                                                     Transfer::Room& room) {
                         room = {at, bytes};
                         // Some stores ignore If-Match.
                         return is_same_version(head) ? 0 : ESTALE;
                       },
                   .range = {{first, bytes}},
                   .if_match = total_.has_weak_etag ? "" : total_.etag},
                  [self = shared_from_this(), first, bytes](Outcome& outcome) {
                    self->take(first, bytes, outcome);
                  });
    }
    if (running_.empty() && (next_ >= total_.size || total_.error != 0)) conclude();
  }

  void take(std::uint64_t first, std::size_t bytes, Outcome& outcome) {
    running_.erase(first);
    if (outcome.error == 0 && outcome.http.body_bytes != bytes)
      outcome.error = ESTALE;  // the object has shrunk
    if (outcome.error == ESTALE && outcome.trouble.empty())
      outcome.trouble = key_ + ": the object has changed";
    if (outcome.error == 0) outcome.error = sink_->take(first, bytes);
    note_end(outcome);
    start_ranges();
  }

  Client& client_;
  const std::string bucket_, key_;
  const std::shared_ptr<ObjectSink> sink_;
  const WholeOptions options_;
  const Done done_;
  Outcome total_;
  static constexpr unsigned k_attempts = 3;
  unsigned attempts_ = 0;  // how often the bytes were damaged
  bool has_begun_ = false, has_print_ = false;
  Fingerprint print_;
  std::unique_ptr<Md5> md5_;
  std::uint64_t hashed_ = 0;  // bytes already added to md5_
  Transfer::Room first_room_;
  std::uint64_t next_ = 0;           // the first byte not requested yet
  std::set<std::uint64_t> running_;  // the first byte of each range in flight
};

}  // namespace

void get_whole(Client& client, std::string bucket, std::string key,
               std::shared_ptr<ObjectSink> sink, WholeOptions options, Done done) {
  std::make_shared<WholeFetch>(client, std::move(bucket), std::move(key), std::move(sink),
                               std::move(options), std::move(done))
      ->start();
}

}  // namespace cube::s3
