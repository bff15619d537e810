// Tells how much memory this process can still use: the remaining memory of the machine or of the
// control groups, whichever is less. Also tells how much room is left in a tmpfs that other
// programs use, too. Unit: bytes. Sources: MemAvailable of /proc/meminfo; memory.max and
// memory.current of cgroup v2, memory.limit_in_bytes and memory.usage_in_bytes of v1. Thread
// safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/base/result.h"

namespace cube::base {

// The memory that this process can still use. UINT64_MAX: not known.
std::uint64_t available_memory();

// The limits of the control groups around this process: the lowest limit, and the least memory that
// a group has left. UINT64_MAX: there is no limit.
struct GroupMemory {
  std::uint64_t limit = UINT64_MAX, left = UINT64_MAX;
  std::uint64_t shared = 0;  // tmpfs memory that counts towards the group with the least left
};
GroupMemory memory_of_groups();

// The region always leaves this much memory free on the machine and in the control group, even if
// the settings ask for a larger region. If the kernel cannot allocate a page of a tmpfs, it calls
// the OOM killer instead of returning an error.
inline constexpr std::uint64_t k_memory_left_alone = 64 << 20;
struct MemoryLeft {
  std::uint64_t left = UINT64_MAX;  // the result of available_memory()
  // How many more bytes must become free until the machine and each control group have
  // k_memory_left_alone free. A control group counts at most with the size of its tmpfs files.
  std::uint64_t missing = 0;
};
MemoryLeft memory_left();

// The size of the smallest region that is created.
inline constexpr std::uint64_t k_least_region = 8 << 20;

// The total and the free room of a region's file system. Other programs use this file system, too:
// data loaders (for their batches), NCCL, MPI. A program that cannot get a page there dies of
// SIGBUS, so the region leaves some room free.
struct SharedRoom {
  std::uint64_t total = 0, free = 0;

  std::uint64_t left_to_others() const { return std::max(k_least_left, total / 16); }
  std::uint64_t usable() const { return free - std::min(free, left_to_others()); }
  // The largest size of a new region. A size that is given in bytes may take all usable room. A
  // size that is given as a share of the memory may take half of the free room. In a small file
  // system, such a size may take only an eighth, because a container's data loader may need nearly
  // all the room.
  std::uint64_t most_for_region(bool is_share) const {
    if (!is_share) return usable();
    return std::min(usable(), total < k_small ? std::max(k_least_region, free / 8) : free / 2);
  }

  static constexpr std::uint64_t k_least_left = 32 << 20, k_small = 256 << 20;
};
// `path`: a directory or a file on the file system.
Result<SharedRoom> shared_room(const char* path);

}  // namespace cube::base
