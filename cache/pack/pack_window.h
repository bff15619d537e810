// How much of a pack one read takes when a program misses a file of it. As long as latency is what
// a read costs, the window around a record takes hardly longer than the record alone, and the other
// files in it need no read of their own. A window is taken once by a process and its forked
// children: what of it has found no room is read alone later, so they never read a pack more than
// twice over. The windows grow while one takes little longer than a record alone, and shrink to
// k_least where it takes three times as long. Thread safety: all of it, between a process and its
// forked children, too; no allocation after make, async-signal-safe.
#pragma once

#include <atomic>
#include <memory>

#include "cache/base/memory/mapping.h"
#include "cache/pack/pack_format.h"

namespace cube::cache {

struct PackSpan {
  std::uint64_t begin = 0, bytes = 0;
  std::uint64_t end() const { return begin + bytes; }
};

class PackWindows {
 public:
  static constexpr std::uint64_t k_least = 128 << 10, k_most = 1 << 20;

  // Null: no memory.
  static std::unique_ptr<PackWindows> make(std::uint64_t records_begin, std::uint64_t records_end);

  // The span to read for this record: the record alone, or a window that holds it and is taken by
  // that.
  PackSpan around(const PackSlot& slot);
  // How long the read took that around() has asked for.
  void note_time(const PackSlot& slot, const PackSpan& read, std::uint64_t ns);

 private:
  // Whether a place was taken is known for each so many bytes.
  static constexpr std::uint64_t k_grain = 64 << 10;
  struct WindowState {
    std::atomic<std::uint64_t> alone_ns;  // of a record alone; 0: not known yet
    std::atomic<std::uint64_t> bytes;     // of a window
    std::atomic<std::uint64_t> taken[1];  // a bit for each k_grain
  };

  PackWindows() = default;
  WindowState& state() const { return *reinterpret_cast<WindowState*>(memory_.data()); }
  bool take(std::uint64_t begin, std::uint64_t end, std::uint64_t wanted);

  base::Mapping memory_;
  std::uint64_t begin_ = 0, end_ = 0;  // of the records
};

}  // namespace cube::cache
