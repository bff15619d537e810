// Decides how much of a pack to read when a program misses a file in it. As long as latency
// dominates the cost of a read, reading the window around a record takes scarcely longer than
// reading the record alone. The larger read saves a read for each other file in the window. A
// process and its forked children read each window once. Records of the window that found no room
// are later read alone. So together these processes read each byte of a pack at most twice. The
// window grows, up to k_most, while its read takes less than 1.5 times as long as the read of a
// single record. The window shrinks, down to k_least, when its read takes more than three times as
// long. Thread-safe, also between a process and its forked children; no allocation after make,
// async-signal-safe.
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

  // The span to read for this record: the record alone, or a window around it. This call claims the
  // window.
  PackSpan around(const PackSlot& slot);
  // Notes how long the read of a span from around() took.
  void note_time(const PackSlot& slot, const PackSpan& read, std::uint64_t ns);

 private:
  // The granularity of `taken`.
  static constexpr std::uint64_t k_grain = 64 << 10;
  struct WindowState {
    std::atomic<std::uint64_t> alone_ns;  // the time to read a single record; 0: not known yet
    std::atomic<std::uint64_t> bytes;     // the size of a window
    std::atomic<std::uint64_t> taken[1];  // a bit for each piece of k_grain bytes
  };

  PackWindows() = default;
  WindowState& state() const { return *reinterpret_cast<WindowState*>(memory_.data()); }
  bool take(std::uint64_t begin, std::uint64_t end, std::uint64_t wanted);

  base::Mapping memory_;
  std::uint64_t begin_ = 0, end_ = 0;  // the range of all records
};

}  // namespace cube::cache
