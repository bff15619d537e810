// How much memory this process may still use, which is the lesser of the machine's and the control
// groups' remaining memory; and how much room is left in a tmpfs that others also use. Unit: bytes.
// Source: MemAvailable of /proc/meminfo; memory.max and memory.current of cgroup v2,
// memory.limit_in_bytes and memory.usage_in_bytes of v1. Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/base/result.h"

namespace cube::base {

// UINT64_MAX: not known.
std::uint64_t available_memory();

// The lowest limit of the control groups around this process, and the least memory that one of them
// has left. UINT64_MAX: there is no limit.
struct GroupMemory {
  std::uint64_t limit = UINT64_MAX, left = UINT64_MAX;
  std::uint64_t shared = 0;  // tmpfs memory that counts towards the group with the least left
};
GroupMemory memory_of_groups();

// Memory that always stays free on the machine and in the control group, even if the settings ask
// for more: if a page of a tmpfs cannot be allocated, the kernel calls the OOM killer instead of
// returning an error.
inline constexpr std::uint64_t k_memory_left_alone = 64 << 20;
struct MemoryLeft {
  std::uint64_t left = UINT64_MAX;  // the result of available_memory()
  // How much of k_memory_left_alone is missing on the machine, or in a control group. For a control
  // group, this is at most the size of its tmpfs files.
  std::uint64_t missing = 0;
};
MemoryLeft memory_left();

// The size of the smallest region that is created.
inline constexpr std::uint64_t k_least_region = 8 << 20;

// The room in the file system of a region now. Other programs also use that file system: data
// loaders for their batches, NCCL, MPI. A program that gets no page there dies (SIGBUS), so some
// room stays free.
struct SharedRoom {
  std::uint64_t total = 0, free = 0;

  std::uint64_t left_to_others() const { return std::max(k_least_left, total / 16); }
  std::uint64_t usable() const { return free - std::min(free, left_to_others()); }
  // A size given as a share of the memory takes at most half of the free room, or an eighth of a
  // small file system, because a container's data loader may need nearly all of that. A size given
  // in bytes is taken literally.
  std::uint64_t most_for_region(bool is_share) const {
    if (!is_share) return usable();
    return std::min(usable(), total < k_small ? std::max(k_least_region, free / 8) : free / 2);
  }

  static constexpr std::uint64_t k_least_left = 32 << 20, k_small = 256 << 20;
};
// `path`: a directory on the file system, or a file that lies there.
Result<SharedRoom> shared_room(const char* path);

}  // namespace cube::base
