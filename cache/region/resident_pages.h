// Limits the part of the region that the kernel counts as this process's own memory (RSS). Pages
// that a process has read stay in its page table. So a monitor that sums or limits the RSS of
// processes would count the cache once for each process. When a process drops pages from its table,
// no memory is freed and no data is lost. The next read then causes one minor fault for each 64 KB.
// Thread-safe and async-signal-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/memory/mapping.h"

namespace cube::cache {

class ResidentPages {
 public:
  // `bound`: the limit in bytes; 0: there is no limit.
  void set_bound(std::uint64_t bound) { bound_.store(bound, std::memory_order_relaxed); }
  // Notes that this thread has read this many bytes of the region. Bytes that are read twice count
  // twice, so the process drops its pages earlier than necessary, which costs a few faults.
  void note_read(std::uint64_t bytes, const base::Mapping& data, const base::Mapping& writable);

 private:
  std::atomic<std::uint64_t> bound_{0};
  std::atomic<std::uint64_t> read_{0};  // bytes that were read since the pages were last dropped
};

}  // namespace cube::cache
