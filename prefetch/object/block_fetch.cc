#include "prefetch/object/block_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/base/clock.h"

namespace cube::prefetch {
namespace {

using cache::k_chunk_bytes;
using cache::LargeFile;

}  // namespace

std::shared_ptr<BlockFetch> BlockFetch::begin(cache::FileCache& cache,
                                              const cache::Mailbox& mailbox, s3::Client& client,
                                              const cache::BucketMount& mount,
                                              std::string_view below, s3::ObjectName name,
                                              const cache::ObjectInfo& version, Finish finish) {
  LargeFile* const file = cache.large().begin_object(fmt::format("{}/{}", mount.prefix(), below),
                                                     mount.stat_of_object(below, version));
  if (file == nullptr) return nullptr;
  return std::shared_ptr<BlockFetch>(
      new BlockFetch(cache, mailbox, client, std::move(name), version, *file, std::move(finish)));
}

BlockFetch::BlockFetch(cache::FileCache& cache, const cache::Mailbox& mailbox, s3::Client& client,
                       s3::ObjectName name, const cache::ObjectInfo& version, LargeFile& file,
                       Finish finish)
    : cache_(cache),
      mailbox_(mailbox),
      client_(client),
      name_(std::move(name)),
      version_(version),
      file_(file),
      finish_(std::move(finish)) {}

BlockFetch::~BlockFetch() { file_.end(); }

std::string BlockFetch::text_of_change(const s3::ObjectName& name) {
  return "s3://" + name.bucket + "/" + name.key + ": the object has changed since it was listed";
}

std::string BlockFetch::text_of_no_ranges(const s3::ObjectName& name) {
  return "s3://" + name.bucket + "/" + name.key +
         ": the store ignores ranges, so each part of a large object costs all that lies before "
         "it; if CUBESHIM_MAX_FILE is larger than the object, it is fetched once";
}

bool BlockFetch::is_present(std::uint64_t begin, std::uint64_t end) const {
  return cache_.large().present_bytes(file_, {begin, end}) == end - begin;
}

bool BlockFetch::copy(std::byte* to, std::uint64_t begin, std::size_t bytes) const {
  return cache_.large().copy_if_present(file_, to, bytes, begin);
}

void BlockFetch::ask(const cache::MailTicket& ticket, const cache::MailPart& part) {
  used_ns_ = base::monotonic_ns();
  last_asker_ = ticket;
  const std::uint64_t end = std::min(part.end, version_.size),
                      ahead_end = std::min(part.ahead_end, version_.size);
  if (part.begin >= end || is_present(part.begin, end)) {
    finish_(ticket, 0, "");
  } else {
    waiting_.push_back({ticket, part.begin, end});
    serve_waiting();
  }
  start(std::max(part.begin, end), ahead_end, /*is_urgent=*/false);
}

int BlockFetch::start(std::uint64_t begin, std::uint64_t end, bool is_urgent) {
  while (begin < end) {
    // Stops at the end of this chunk, or at the beginning of a range that is being fetched.
    const auto after = running_.upper_bound(begin);
    if (after != running_.begin() && std::prev(after)->second > begin) {
      begin = std::prev(after)->second;
      continue;
    }
    std::uint64_t until = std::min(end, (begin / k_chunk_bytes + 1) * k_chunk_bytes);
    if (after != running_.end()) until = std::min(until, after->first);
    const auto gap = std::make_shared<LargeFile::Gap>();
    switch (cache_.large().make_gap(file_, begin, until, *gap)) {
      case LargeFile::Made::no_room: return ENOSPC;
      case LargeFile::Made::here: begin = until; continue;
      case LargeFile::Made::gap: break;
    }
    start_gap(gap, is_urgent);
    begin = gap->at + gap->bytes;
  }
  return 0;
}

// Returns 0 if the answer belongs to the version that was listed, otherwise ESTALE.
int BlockFetch::check(const s3::Outcome& head) {
  if (head.size != version_.size || cache::mark_of_etag(head.etag) != version_.etag_mark)
    return ESTALE;
  if (etag_.empty() && !head.has_weak_etag) etag_ = head.etag;
  return 0;
}

void BlockFetch::start_gap(const std::shared_ptr<LargeFile::Gap>& gap, bool is_urgent) {
  running_[gap->at] = gap->at + gap->bytes;
  client_.get({.bucket = name_.bucket,
               .key = name_.key,
               .begin =
                   [self = this, gap](const s3::Outcome& head, s3::Transfer::Room& room) {
                     room = {gap->room(), gap->bytes};
                     return self->check(head);
                   },
               .is_urgent = is_urgent,
               .range = {{gap->at, gap->bytes}},
               .if_match = etag_},
              [self = shared_from_this(), gap, is_urgent](s3::Outcome& outcome) {
                self->take(*gap, is_urgent, outcome);
              });
}

void BlockFetch::take(const LargeFile::Gap& gap, bool is_urgent, s3::Outcome& outcome) {
  running_.erase(gap.at);
  base::Stats& stats = mailbox_.stats_of(last_asker_);
  stats.count(base::Counter::origin_reads, outcome.answers);
  stats.count(base::Counter::origin_bytes, outcome.received);
  stats.count(base::Counter::bucket_gets, outcome.answers);
  stats.count(base::Counter::bucket_bytes, outcome.received);
  if (outcome.error == 0 && outcome.http.body_bytes != gap.bytes) outcome.error = ESTALE;
  if (outcome.error == 0) {
    if (outcome.ignores_range) warning_ = text_of_no_ranges(name_);
    const bool is_ahead = std::ranges::none_of(waiting_, [&](const Waiting& one) {
      return one.begin < gap.at + gap.bytes && gap.at < one.end;
    });
    cache_.large().fill_gap(file_, gap, is_ahead && !is_urgent, stats);
  } else {
    const bool has_changed = outcome.error == ESTALE || outcome.error == ENOENT;
    fail(gap.at, gap.at + gap.bytes, has_changed ? EIO : outcome.error,
         has_changed ? text_of_change(name_) : outcome.trouble);
  }
  for (const Waiting& one : waiting_) mailbox_.tell_progress(one.ticket);
  serve_waiting();
}

// Answers the askers whose bytes are all present, and requests the missing bytes for the others.
void BlockFetch::serve_waiting() {
  std::erase_if(waiting_, [&](const Waiting& one) {
    if (!mailbox_.is_wanted(one.ticket)) return true;
    if (is_present(one.begin, one.end)) {
      finish_(one.ticket, 0, warning_);
      return true;
    }
    const int error = start(one.begin, one.end, /*is_urgent=*/true);
    // Waits for room: chunks that are being fetched are pinned, and can be evicted when they are
    // complete.
    if (!running_.empty()) return false;
    finish_(one.ticket, error, "");
    return true;
  });
}

void BlockFetch::fail(std::uint64_t begin, std::uint64_t end, int error,
                      const std::string& trouble) {
  std::erase_if(waiting_, [&](const Waiting& one) {
    const bool is_of_it = one.begin < end && begin < one.end;
    if (is_of_it) finish_(one.ticket, error, trouble);
    return is_of_it;
  });
}

}  // namespace cube::prefetch
