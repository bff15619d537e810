#include "cache/pack/pack_window.h"

#include <algorithm>
#include <new>

#include "cache/base/round.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_first = 256 << 10;

}  // namespace

std::unique_ptr<PackWindows> PackWindows::make(std::uint64_t records_begin,
                                               std::uint64_t records_end) {
  std::unique_ptr<PackWindows> windows(new (std::nothrow) PackWindows);
  if (windows == nullptr) return nullptr;
  const std::uint64_t words = records_end / k_grain / 64 + 1;
  auto memory = base::Mapping::shared_zeros(sizeof(WindowState) + words * sizeof(std::uint64_t));
  if (!memory) return nullptr;
  windows->memory_ = std::move(*memory);
  windows->begin_ = records_begin;
  windows->end_ = records_end;
  windows->state().bytes.store(k_first, std::memory_order_relaxed);
  return windows;
}

// Claims the window [begin, end). False: the grain at offset `wanted` was already claimed.
bool PackWindows::take(std::uint64_t begin, std::uint64_t end, std::uint64_t wanted) {
  const auto mark = [this](std::uint64_t grain) {
    const std::uint64_t bit = 1ULL << (grain % 64);
    // Relaxed: the bit publishes no other data. If two threads claim a window at the same time, the
    // thread that comes second reads only the record that it needs.
    return (state().taken[grain / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  };
  if (!mark(wanted / k_grain)) return false;
  for (std::uint64_t at = begin; at < end; at += k_grain) mark(at / k_grain);
  return true;
}

PackSpan PackWindows::around(const PackSlot& slot) {
  const PackSpan alone{slot.offset, slot.bytes};
  const std::uint64_t bytes = state().bytes.load(std::memory_order_relaxed);
  if (slot.bytes >= bytes || state().alone_ns.load(std::memory_order_relaxed) == 0) return alone;
  const std::uint64_t begin = base::round_down(slot.offset, bytes),
                      end = base::round_up(slot.offset + slot.bytes, bytes);
  if (!take(begin, end, slot.offset)) return alone;
  PackSpan window{std::max(begin, begin_), 0};
  window.bytes = std::min(end, end_) - window.begin;
  return window;
}

void PackWindows::note_time(const PackSlot& slot, const PackSpan& read, std::uint64_t ns) {
  WindowState& known = state();
  const std::uint64_t alone = known.alone_ns.load(std::memory_order_relaxed);
  if (read.bytes == slot.bytes) {
    // After a quicker read, the time drops immediately, because the read shows the speed of the
    // origin. After slower reads, the time rises only slowly: the origin may be slower only for a
    // moment.
    known.alone_ns.store(
        std::max<std::uint64_t>(1, alone == 0 ? ns : std::min(ns, alone + alone / 16)),
        std::memory_order_relaxed);
    return;
  }
  const std::uint64_t bytes = known.bytes.load(std::memory_order_relaxed);
  // The read must have about the current size of a window. A read of two windows, or of a window of
  // an earlier size, shows nothing about the current size.
  if (read.bytes > bytes || read.bytes <= bytes / 2) return;
  if (ns < alone * 3 / 2 && bytes < k_most) known.bytes.store(bytes * 2, std::memory_order_relaxed);
  if (ns > alone * 3 && bytes > k_least) known.bytes.store(bytes / 2, std::memory_order_relaxed);
}

}  // namespace cube::cache
