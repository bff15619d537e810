// Tells how much memory this process may still use: the remaining memory of the machine or of the
// control groups, whichever is less. Also tells how much room is left in a tmpfs that other
// programs use, too. Unit: bytes. Sources: MemAvailable of /proc/meminfo; memory.max and
// memory.current of cgroup v2, memory.limit_in_bytes and memory.usage_in_bytes of v1. Thread
// safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/base/result.h"

namespace cube::base {

// The memory that this process may still use. UINT64_MAX: it is not known.
std::uint64_t available_memory();

// The limits of the control groups around this process: the lowest limit, and the least memory that
// a group has left. UINT64_MAX: there is no limit.
struct GroupMemory {
  std::uint64_t limit = UINT64_MAX, left = UINT64_MAX;
  std::uint64_t shared = 0;  // tmpfs memory that counts towards the group with the least left
};
GroupMemory memory_of_groups();

// Memory that always stays free on the machine and in the control group, even if the settings ask
// for a larger region. If a page of a tmpfs cannot be allocated, the kernel calls the OOM killer
// instead of returning an error.
inline constexpr std::uint64_t k_memory_left_alone = 64 << 20;
struct MemoryLeft {
  std::uint64_t left = UINT64_MAX;  // the result of available_memory()
  // How much of k_memory_left_alone is missing on the machine, or in a control group. For a control
  // group, the amount is at most the size of the group's tmpfs files.
  std::uint64_t missing = 0;
};
MemoryLeft memory_left();

// The size of the smallest region that is created.
inline constexpr std::uint64_t k_least_region = 8 << 20;

// The room that is now in the file system of a region. Other programs use that file system, too:
// data loaders (for their batches), NCCL, MPI. A program that cannot get a page there dies of
// SIGBUS, so the region leaves some room free.
struct SharedRoom {
  std::uint64_t total = 0, free = 0;

  std::uint64_t left_to_others() const { return std::max(k_least_left, total / 16); }
  std::uint64_t usable() const { return free - std::min(free, left_to_others()); }
  // A region whose size is given as a share of the memory uses at most half of the free room. In a
  // small file system it uses at most an eighth, because a container's data loader may need nearly
  // all the room. A size given in bytes is not reduced.
  std::uint64_t most_for_region(bool is_share) const {
    if (!is_share) return usable();
    return std::min(usable(), total < k_small ? std::max(k_least_region, free / 8) : free / 2);
  }

  static constexpr std::uint64_t k_least_left = 32 << 20, k_small = 256 << 20;
};
// `path`: a directory or a file on the file system.
Result<SharedRoom> shared_room(const char* path);

}  // namespace cube::base
