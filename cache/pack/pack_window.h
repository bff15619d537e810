// Decides how much of a pack to read when a program misses a file in it. If latency dominates, a
// read of the whole window around a record takes scarcely longer than a read of the record alone.
// The larger read saves a read for each other file in the window. A process and its forked children
// together read each window only once. A record of the window that found no room in the cache is
// later read alone. So no byte of the pack is read more than twice. Windows grow, up to k_most,
// while a window takes less than 1.5 times as long to read as a single record. Windows shrink, down
// to k_least, if a window takes more than three times as long. Thread-safe, also between a process
// and its forked children. Async-signal-safe; allocates nothing after make().
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

  // Null: there is no memory.
  static std::unique_ptr<PackWindows> make(std::uint64_t records_begin, std::uint64_t records_end);

  // Returns the span to read for this record: the record alone, or a window around it, which this
  // call claims.
  PackSpan around(const PackSlot& slot);
  // Notes how long the read of a span took that around() has returned.
  void note_time(const PackSlot& slot, const PackSpan& read, std::uint64_t ns);

 private:
  // The number of bytes for each bit of `taken`.
  static constexpr std::uint64_t k_grain = 64 << 10;
  struct WindowState {
    std::atomic<std::uint64_t> alone_ns;  // the time that the read of a single record takes; 0: not
                                          // known yet
    std::atomic<std::uint64_t> bytes;     // the size of a window
    std::atomic<std::uint64_t> taken[1];  // a bit for each k_grain bytes
  };

  PackWindows() = default;
  WindowState& state() const { return *reinterpret_cast<WindowState*>(memory_.data()); }
  bool take(std::uint64_t begin, std::uint64_t end, std::uint64_t wanted);

  base::Mapping memory_;
  std::uint64_t begin_ = 0, end_ = 0;  // the range of all records
};

}  // namespace cube::cache
