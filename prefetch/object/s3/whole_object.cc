#include "prefetch/object/s3/whole_object.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

namespace cube::s3 {
namespace {

// Lives as long as a request that refers to it.
class WholeFetch : public std::enable_shared_from_this<WholeFetch> {
 public:
  WholeFetch(Client& client, std::string bucket, std::string key, std::shared_ptr<ObjectSink> sink,
             WholeOptions options, Done done)
      : client_(client),
        bucket_(std::move(bucket)),
        key_(std::move(key)),
        sink_(std::move(sink)),
        options_(options),
        done_(std::move(done)) {}

  void start() {
    client_.get({.bucket = bucket_, .key = key_, .range = {{0, options_.range_bytes}}},
                [self = shared_from_this()](Outcome& outcome) { self->begin(outcome); });
  }

 private:
  void begin(Outcome& outcome) {
    // No range of an empty object exists.
    if (outcome.error != 0 && outcome.http.status == 416) {
      outcome.error = 0;
      outcome.size = 0;
      outcome.http.body.clear();
    }
    if (outcome.error != 0) return done_(outcome);
    total_ = std::move(outcome);
    const std::string& bytes = total_.http.body;
    total_.error = sink_->begin(total_);
    if (total_.error == 0 && !bytes.empty()) {
      std::memcpy(sink_->room(0, bytes.size()), bytes.data(), bytes.size());
      total_.error = sink_->take(0, bytes.size());
    }
    next_ = bytes.size();
    start_ranges();
  }

  void start_ranges() {
    const std::uint64_t lowest = running_.empty() ? next_ : *running_.begin();
    const std::uint64_t end =
        total_.error != 0
            ? next_
            : std::min(total_.size, lowest + options_.in_flight * options_.range_bytes);
    while (next_ < end) {
      const std::uint64_t first = next_;
      const auto bytes =
          static_cast<std::size_t>(std::min(options_.range_bytes, total_.size - first));
      next_ += bytes;
      running_.insert(first);
      client_.get({.bucket = bucket_,
                   .key = key_,
                   .room = {sink_->room(first, bytes), bytes},
                   .range = {{first, bytes}},
                   .if_match = total_.etag},
                  [self = shared_from_this(), first, bytes](Outcome& outcome) {
                    self->take(first, bytes, outcome);
                  });
    }
    if (running_.empty() && (next_ >= total_.size || total_.error != 0)) done_(total_);
  }

  void take(std::uint64_t first, std::size_t bytes, Outcome& outcome) {
    running_.erase(first);
    if (outcome.error == 0 && outcome.http.body_bytes != bytes) {  // the object has shrunk
      outcome.error = ESTALE;
      outcome.trouble = key_ + ": the object has changed";
    }
    if (outcome.error == 0) outcome.error = sink_->take(first, bytes);
    if (outcome.error != 0 && total_.error == 0) {
      total_.error = outcome.error;
      total_.trouble = std::move(outcome.trouble);
      total_.kind = std::move(outcome.kind);
    }
    start_ranges();
  }

  Client& client_;
  const std::string bucket_, key_;
  const std::shared_ptr<ObjectSink> sink_;
  const WholeOptions options_;
  const Done done_;
  Outcome total_;
  std::uint64_t next_ = 0;           // the first byte that was not asked for
  std::set<std::uint64_t> running_;  // the first byte of each range in flight
};

}  // namespace

void get_whole(Client& client, std::string bucket, std::string key,
               std::shared_ptr<ObjectSink> sink, WholeOptions options, Done done) {
  std::make_shared<WholeFetch>(client, std::move(bucket), std::move(key), std::move(sink), options,
                               std::move(done))
      ->start();
}

}  // namespace cube::s3
