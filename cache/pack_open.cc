// FileCache: files that lie in packs, opened by a read of the pack, which may bring their neighbours.
#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/fetch.h"
#include "cache/file_cache.h"
#include "cache/pack/pack_copy.h"
#include "cache/pack/pack_neighbours.h"

namespace cube::cache {
namespace {

using base::Counter;

bool publish_packed(Fetch& fetch, const PackMount::Content& content) {
  std::memcpy(fetch.room(), content.data, content.stat.size);
  fetch.note_hash(content.entry.data_hash);
  return fetch.publish();
}

}  // namespace

OpenOutcome FileCache::open_uncached(const OpenRequest& request, Counter reason) {
  const PackMount* const pack = pack_of(request.key);
  if (pack == nullptr) return open_plain(request, reason);
  PackScratch scratch;
  PackMount::Content content;
  const auto read = pack->read(request.key, rules_.max_file, scratch, content);
  if (read) return hand_over_copy(*pack, content, request, reason);
  return fail_packed(request, read.error().value);
}

// What a pack does not have is the kernel's to answer.
OpenOutcome FileCache::fail_packed(const OpenRequest& request, int error) {
  if (error == ENOENT) return open_plain(request, Counter::bypassed_kind);
  stats().count(error == EISDIR ? Counter::bypassed_kind : Counter::bypassed_error);
  OpenOutcome outcome;
  outcome.error = error;
  return outcome;
}

OpenOutcome FileCache::hand_over_copy(const PackMount& pack, const PackMount::Content& content, const OpenRequest& request,
                                      Counter reason) {
  stats().count(reason);
  OpenOutcome outcome;
  request.before_kernel_open();
  auto copy = copy_of_packed(pack, content, request.flags);
  if (copy) {
    outcome.kernel_fd = copy->release();
  } else {
    outcome.error = copy.error().value;
  }
  return outcome;
}

bool FileCache::may_fetch_neighbours() const {
  return fetches_ahead_ && !ram_.is_full() && packs_->record_bytes() <= ram_.resident_bytes() / 8 * 7;
}

OpenOutcome FileCache::fetch_packed(const PackMount& pack, const OpenRequest& request) {
  const std::uint64_t began = base::monotonic_ns();
  PackScratch scratch;
  PackMount::Content content;
  const auto reach = may_fetch_neighbours() ? PackMount::Reach::window : PackMount::Reach::record;
  const auto read = pack.read(request.key, rules_.max_file, scratch, content, reach);
  if (read || content.window != nullptr) {
    stats().count(Counter::origin_reads);
    stats().count(Counter::origin_bytes, content.window != nullptr ? content.span.bytes : content.stat.size);
  }
  OpenOutcome outcome = read ? keep_packed(pack, content, request) : fail_packed(request, read.error().value);
  if (outcome.pin) stats().miss_latency.add(base::monotonic_ns() - began);
  // Those of what is no file, too, for the window is not read again.
  if (content.window != nullptr) keep_neighbours(pack, content);
  return outcome;
}

OpenOutcome FileCache::keep_packed(const PackMount& pack, const PackMount::Content& content, const OpenRequest& request) {
  if (content.data == nullptr) return hand_over_copy(pack, content, request, Counter::bypassed_size);
  Fetch fetch(ram_, rules_, request.key);
  switch (fetch.accept(content.stat, content.physical)) {
    case Fetch::Next::refuse: return hand_over_copy(pack, content, request, fetch.reason());
    case Fetch::Next::done:
      if (fetch.pin()->is_prefetched()) note_opened(*fetch.pin(), /*waited_for_prefetch=*/false);
      break;
    case Fetch::Next::read:
      if (!publish_packed(fetch, content)) return hand_over_copy(pack, content, request, fetch.reason());
      break;
  }
  stats().count(Counter::misses);
  OpenOutcome outcome;
  outcome.pin = std::move(fetch.pin());
  return outcome;
}

void FileCache::keep_neighbours(const PackMount& pack, const PackMount::Content& content) {
  PackNeighbours neighbours(pack, content);
  std::string_view path;
  PackMount::Content found;
  while (!ram_.is_full() && neighbours.next(path, found)) {
    // Below another pack's prefix it is that one's.
    if (pack_of(path) == &pack) keep_neighbour(path, found);
  }
}

// As a prefetch: who asks for it meanwhile waits, and nobody is waited for.
void FileCache::keep_neighbour(std::string_view key, const PackMount::Content& content) {
  const std::uint64_t hash = base::hash_path(key);
  if (const Pin there = ram_.find(key, hash)) {
    if (has_right_source(*there)) return;
    // Of a pack that was replaced: an open of it would find that out, and would have to read it alone.
    ram_.mark_stale(key);
  }
  SingleFlight::Ticket ticket;
  if (flights_.begin_prefetch(hash, ticket) != SingleFlight::Prefetch::mine || ram_.find(key, hash)) return;
  Fetch fetch(ram_, rules_, key, Lane::background);
  if (fetch.accept(content.stat, content.physical) != Fetch::Next::read) return;
  if (publish_packed(fetch, content)) stats().count(Counter::prefetch_fetched);
}

}  // namespace cube::cache
