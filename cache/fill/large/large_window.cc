// LargeFile: determines how far ahead of the program a file is read.
#include <algorithm>

#include "cache/fill/large/large_file.h"
#include "cache/region/large/large_pages.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_widest_window = 16 << 20;
// The passing chunks must have room for this many windows.
constexpr std::uint64_t k_windows_passing = 8;
// A reader still counts as sequential if it skips at most 1/16 of the bytes, such as the headers
// between the tensors of an archive.
constexpr std::uint64_t k_left_out = 16;

}  // namespace

bool LargeFile::is_block_present(CacheParts& parts, std::uint64_t at, std::uint64_t block) const {
  const std::uint64_t begin = at / block * block;
  return find(chunks(parts), chunk_of(begin))
      .has_all(pages_of(begin, std::min(begin + block, stat_.size)));
}

// The widest window in bytes. In a wider window, bytes could be replaced before the program reads
// them. The limit holds for a few readers at the same time.
std::uint64_t LargeFile::widest_window(const Chunks& chunks) {
  return chunks.is_full() ? std::min(k_widest_window, chunks.passing_bytes() / k_windows_passing)
                          : k_widest_window;
}

LargeFile::Range LargeFile::wanted(CacheParts& parts, const Range& range) const {
  const Chunks chunks = this->chunks(parts);
  const std::uint64_t widest = std::max(widest_window(chunks), parts.rules.block);
  if (range.end - range.begin <= widest) return range;
  if (chunks.is_full()) return {range.begin, range.begin + widest};
  return {range.begin, range.end, false};
}

LargeFile::Range LargeFile::ahead(CacheParts& parts, std::uint64_t at, std::size_t n) {
  const std::uint64_t block = parts.rules.block, end = at + n;
  const Advice advice = advice_.load(std::memory_order_relaxed);
  const std::uint64_t next = next_.exchange(end, std::memory_order_relaxed);
  const bool goes_on = next != 0 && at >= next && at - next <= n / k_left_out;
  if (advice == Advice::random) return {};
  if (!goes_on) {
    window_.store(advice == Advice::sequential ? k_widest_window / 2 : 0,
                  std::memory_order_relaxed);
    ahead_end_.store(0, std::memory_order_relaxed);
    std::uint64_t wanted = wanted_block_.load(std::memory_order_relaxed);
    if (wanted != 0) wanted = wanted_block_.exchange(0, std::memory_order_relaxed);
    if (wanted != 0) return {(wanted - 1) * block, wanted * block};
    if (advice != Advice::sequential) return {};
  }
  const std::uint64_t window = window_.load(std::memory_order_relaxed);
  const std::uint64_t ahead_end = ahead_end_.load(std::memory_order_relaxed);
  // Returns nothing until the program has read half of the last window.
  if (window != 0 && ahead_end > end + window / 2) return {};
  const std::uint64_t from = std::max(ahead_end, (end + block - 1) / block * block);
  const Chunks chunks = this->chunks(parts);
  const std::uint64_t widest = widest_window(chunks);
  const std::uint64_t wider =
      std::max(std::min(std::max<std::uint64_t>(window * 2, n / block * block), widest), block);
  const std::uint64_t to = std::min(from + wider, (stat_.size + block - 1) / block * block);
  std::uint64_t begin = from;
  while (begin < to && is_block_present(parts, begin, block)) begin += block;
  ahead_end_.store(std::max(from, to), std::memory_order_relaxed);
  // Present blocks are not fetched and do not widen the window.
  if (begin >= to || is_over_.load(std::memory_order_relaxed)) return {};
  window_.store(wider, std::memory_order_relaxed);
  return {begin, to};
}

}  // namespace cube::cache
