// LargeFile: predicts whether a program will read all of a mapped file, such as the weights of a
// model, and fetches the absent pages before the program touches them.
#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/readahead.h"
#include "cache/fill/fd_epoch.h"
#include "cache/fill/large/large_file.h"
#include "cache/fill/large/weights_format.h"
#include "cache/region/fetch_scope.h"
#include "cache/region/large/large_pages.h"
#include "cache/region/life/process_slots.h"

namespace cube::cache {
namespace {

// If a tenth of a mapping is present, the program will probably touch most of the rest.
constexpr std::uint64_t k_touched_part = 10;

// The place of the first chunk of the file that this process mapped last, plus one.
constinit std::atomic<std::uint32_t> g_last_mapped{0};
// The process_word of another process that has mapped a file that this process mapped, or 0.
constinit std::atomic<std::uint32_t> g_other_rank{0};

}  // namespace

LargeFile::Reading LargeFile::reading_of(CacheParts& parts, const Range& mapped) const {
  const Advice advice = advice_.load(std::memory_order_relaxed);
  if (advice == Advice::sequential) return Reading::in_order;
  if (advice == Advice::random) return Reading::unknown;
  if (is_of_whole_format(parts)) return Reading::in_order;
  const std::uint64_t bytes = mapped.end - mapped.begin;
  // A mapping that is larger than all chunks together cannot fit, so its bytes are not counted.
  if (bytes > std::uint64_t{parts.region.layout().chunk_count()} * k_chunk_bytes)
    return Reading::unknown;
  const std::uint64_t present = present_bytes(parts, mapped);
  return present >= bytes / k_touched_part && fits(parts, mapped, present) ? Reading::whole
                                                                           : Reading::unknown;
}

bool LargeFile::is_of_whole_format(CacheParts& parts) const {
  const auto head = find(chunks(parts), 0);
  return head.has_all({0, 1}) &&
         is_weights_format({head.data(), std::min(k_chunk_page, stat_.size)}, stat_.size);
}

bool LargeFile::fits(CacheParts& parts, const Range& range, std::uint64_t present) const {
  return range.end - range.begin <= present + chunks(parts).free_bytes();
}

void LargeFile::forget_ranks() {
  g_last_mapped.store(0, std::memory_order_relaxed);
  g_other_rank.store(0, std::memory_order_relaxed);
}

bool LargeFile::note_mapping_of_ranks(CacheParts& parts) {
  // A jump out of this function would leave a half-made chunk.
  const base::BlockSignals block;
  Chunks chunks = this->chunks(parts);
  const auto head = is_full() ? find(chunks, 0) : chunks.make(key_, 0, place_of(chunks, 0));
  if (!head) return false;
  Region& region = parts.region;
  const std::uint32_t own = process_word(region, region.own_slot());
  const auto is_other = [&](std::uint32_t process) {
    return process != own && process_of_word_is_alive(region, process);
  };
  const std::uint32_t before = head.note_mapper(own),
                      last = g_last_mapped.exchange(head.place() + 1, std::memory_order_relaxed);
  if (is_other(g_other_rank.load(std::memory_order_relaxed))) return true;
  const std::uint32_t mapper_of_last = last == 0 ? 0 : chunks.mapper_of(last - 1),
                      other = is_other(before)           ? before
                              : is_other(mapper_of_last) ? mapper_of_last
                                                         : 0;
  g_other_rank.store(other, std::memory_order_relaxed);
  return other != 0;
}

bool LargeFile::bring_to_map(CacheParts& parts, const FdEpoch& fd, const Range& range,
                             std::uint64_t until_ns, Pace& pace) {
  const std::uint64_t block = parts.rules.block, last = std::min(range.end, stat_.size);
  for (std::uint64_t at = range.begin; at < last;) {
    const std::uint64_t end = std::min((at / block + 1) * block, last);
    const PageRun gap = find(chunks(parts), chunk_of(at)).next_absent(pages_of(at, end));
    if (gap.is_empty()) {
      at = end;
      continue;
    }
    // A signal handler that has interrupted a fetch must not wait for it.
    if (is_over() || FetchScope::is_open() || base::monotonic_ns() >= until_ns) return false;
    at = byte_of(chunk_of(at), gap.first);
    if (const std::uint64_t hash = block_hash(at, block); parts.flights.is_under_way(hash)) {
      if (!parts.flights.wait_for_end(hash, until_ns)) return false;
      // If the owner has died, its flight is still there, and the fetch takes it over.
      if (!parts.flights.is_under_way(hash)) continue;
    }
    // An open of the file must not make the kernel drop pages that are being read.
    const SingleFlight::Ticket reading = begin_reading_by(parts, fd.fd(), until_ns);
    const std::uint64_t began = base::monotonic_ns(), n = std::min(end - at, pace.most_bytes());
    if (began >= until_ns) return false;
    const By by{.fd = fd.fd(),
                .of_program = &fd,
                .begin = range.begin,
                .bytes = last - range.begin,
                .is_to_map = true,
                .reading = reading.hold()};
    if (fetch(parts, by, at, n) != Fetched::here) return false;
    pace.note(std::min(n, gap.count() * k_chunk_page), base::monotonic_ns() - began);
  }
  return true;
}

void LargeFile::ask_mapped(CacheParts& parts, const base::Mapping& mapping, std::uint64_t begin,
                           const Range& range) const {
  const Chunks chunks = this->chunks(parts);
  for (std::uint64_t at = range.begin, end = 0; at < range.end; at = end) {
    end = std::min(range.end, (at / k_chunk_bytes + 1) * k_chunk_bytes);
    const PageRun all = pages_of(at, end);
    const auto claim = find(chunks, chunk_of(at));
    constexpr auto k_most_at_once =
        static_cast<std::uint32_t>(base::k_one_readahead / k_chunk_page);
    for (PageRun run = claim.next_absent(all, k_most_at_once); !run.is_empty();
         run = claim.next_absent({run.end, all.end}, k_most_at_once))
      base::sys::madvise(mapping.data() + (byte_of(chunk_of(at), run.first) - begin),
                         run.count() * k_chunk_page, MADV_WILLNEED);
  }
}

std::optional<std::uint64_t> LargeFile::bring_mapped(CacheParts& parts,
                                                     const base::Mapping& mapping,
                                                     std::uint64_t begin, const Range& range,
                                                     int region_fd) {
  const std::uint64_t block = parts.rules.block, last = std::min(range.end, stat_.size);
  std::uint64_t brought = 0;
  for (std::uint64_t at = range.begin, end = 0; at < last; at = end) {
    end = std::min((at / block + 1) * block, last);
    const PageRun all = pages_of(at, end);
    for (PageRun run{all.first, all.first};;) {
      run = find(chunks(parts), chunk_of(at)).next_absent({run.end, all.end});
      if (run.is_empty()) break;
      if (is_locked() || is_over()) return {};
      const std::uint64_t from = byte_of(chunk_of(at), run.first),
                          to = byte_of(chunk_of(at), run.end);
      const auto kept = keep_run(parts, mapping.data() + (from - begin), from,
                                 std::min(to, stat_.size), region_fd, /*reads=*/true);
      if (!kept) return {};
      brought += *kept;
    }
  }
  return brought;
}

}  // namespace cube::cache
