// How much memory this process may still use: of the machine and of its control group, whichever is
// less; and how much of a tmpfs that others use, too. Unit: bytes. Source: MemAvailable of
// /proc/meminfo; memory.max and memory.current of cgroup v2, memory.limit_in_bytes and
// memory.usage_in_bytes of v1. Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/base/result.h"

namespace cube::base {

// UINT64_MAX where nothing can be found out.
std::uint64_t available_memory();

// The least limit of the control groups around this process, and the least that one of them has
// left. UINT64_MAX: there is none.
struct GroupMemory {
  std::uint64_t limit = UINT64_MAX, left = UINT64_MAX;
  std::uint64_t shared = 0;  // of a tmpfs, and counts towards the group that has the least left
};
GroupMemory memory_of_groups();

// Left alone on the machine and in the control group whatever the settings say: a page of a tmpfs
// that cannot be had means the OOM killer, not an error.
inline constexpr std::uint64_t k_memory_left_alone = 64 << 20;
// How much of that is missing, as far as it may have gone to a tmpfs.
std::uint64_t missing_memory();

// The file system of a region as it is now. Others use it, too: a data loader's batches, NCCL, MPI.
// A program that gets no page there dies (SIGBUS), so some of it stays free.
struct SharedRoom {
  std::uint64_t total = 0, free = 0;

  std::uint64_t left_to_others() const { return std::max(k_least_left, total / 16); }
  std::uint64_t usable() const { return free - std::min(free, left_to_others()); }
  // A share of the memory means no more than half of what is free here. A size is the user's word.
  std::uint64_t most_for_region(bool is_share) const {
    return is_share ? std::min(usable(), free / 2) : usable();
  }

  static constexpr std::uint64_t k_least_left = 32 << 20;
};
// By the path of a directory, or of a file that lies there.
Result<SharedRoom> shared_room(const char* path);

}  // namespace cube::base
