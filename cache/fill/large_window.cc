// Reading a large file (large_file.h) ahead of the program: how far, and the blocks.
#include <algorithm>

#include "cache/fill/large_file.h"
#include "cache/fill/large_pages.h"

namespace cube::cache {
namespace {

// A fetch ahead shows its bytes to the readers after each step.
constexpr std::uint64_t k_ahead_step = 256 << 10;
constexpr std::uint64_t k_widest_window = 16 << 20;
// Windows for which there is room among chunks that pass.
constexpr std::uint64_t k_windows_passing = 8;

}  // namespace

bool LargeFile::is_block_present(CacheParts& parts, std::uint64_t at, std::uint64_t block) const {
  const std::uint64_t begin = at / block * block;
  return find(chunks(parts), chunk_of(begin)).has_all(pages_of(begin, std::min(begin + block, stat_.size)));
}

LargeFile::Range LargeFile::ahead(CacheParts& parts, std::uint64_t at, std::size_t n) {
  const std::uint64_t block = parts.rules.block, end = at + n;
  const Advice advice = advice_.load(std::memory_order_relaxed);
  const bool goes_on = next_.exchange(end, std::memory_order_relaxed) == at && at != 0;
  if (advice == Advice::random) return {};
  if (!goes_on) {
    window_.store(advice == Advice::sequential ? k_widest_window / 2 : 0, std::memory_order_relaxed);
    ahead_end_.store(0, std::memory_order_relaxed);
    std::uint64_t wanted = wanted_block_.load(std::memory_order_relaxed);
    if (wanted != 0) wanted = wanted_block_.exchange(0, std::memory_order_relaxed);
    if (wanted != 0) return {(wanted - 1) * block, wanted * block};
    if (advice != Advice::sequential) return {};
  }
  const std::uint64_t window = window_.load(std::memory_order_relaxed);
  const std::uint64_t from = std::max(ahead_end_.load(std::memory_order_relaxed), (end + block - 1) / block * block);
  // Not before half of what was asked for has been read.
  if (window != 0 && from > end + window / 2) return {};
  const Chunks chunks = this->chunks(parts);
  const std::uint64_t widest =
      chunks.is_full() ? std::min(k_widest_window, chunks.passing_bytes() / k_windows_passing) : k_widest_window;
  const std::uint64_t wider = std::max(std::min(window * 2, widest), block);
  const std::uint64_t to = std::min(from + wider, (stat_.size + block - 1) / block * block);
  std::uint64_t begin = from;
  while (begin < to && is_block_present(parts, begin, block)) begin += block;
  ahead_end_.store(std::max(from, to), std::memory_order_relaxed);
  // Blocks that are present are not asked for, and do not widen the window.
  if (begin >= to || is_over_.load(std::memory_order_relaxed)) return {};
  window_.store(wider, std::memory_order_relaxed);
  return {begin, to};
}

bool LargeFile::fetch_ahead(CacheParts& parts, int fd, Numbers numbers, std::uint64_t at) {
  const std::uint64_t block = parts.rules.block, begin = at / block * block, end = std::min(begin + block, stat_.size);
  if (begin >= end || is_over_.load(std::memory_order_relaxed)) return false;
  const Chunks chunks = this->chunks(parts);
  if (is_full() && !find(chunks, chunk_of(begin))) return false;
  SingleFlight::Ticket ticket;
  if (parts.flights.begin_prefetch(block_hash(begin, block), ticket) != SingleFlight::Prefetch::mine) return true;
  if (ticket.hold().slot == nullptr) return true;
  const auto step = static_cast<std::uint32_t>(std::max<std::uint64_t>(k_ahead_step, base::kernel_page()) / k_chunk_page);
  PageRun rest = pages_of(begin, end);
  for (;;) {
    const PageRun gap = find(chunks, chunk_of(begin)).next_absent(rest, step);
    if (gap.is_empty()) break;
    rest.first = gap.end;
    // A program that has closed the file does not want its lock, or its mount, held up.
    if (numbers != this->numbers()) return false;
    if (bring(parts, {.fd = fd, .pass = Chunks::Pass::may_pass}, chunk_of(begin), gap) != Fetched::here) return false;
    ticket.hold().tell_progress();
  }
  return true;
}

}  // namespace cube::cache
