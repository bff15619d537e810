// How much memory this process may still use: of the machine and of its control group, whichever is less.
// Unit: bytes. Source: MemAvailable of /proc/meminfo; memory.max and memory.current of cgroup v2,
// memory.limit_in_bytes and memory.usage_in_bytes of v1. Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace cube::base {

// UINT64_MAX where nothing can be found out.
std::uint64_t available_memory();

// The least limit of the control groups around this process, and the least that one of them has left. UINT64_MAX: there is none.
struct GroupMemory {
  std::uint64_t limit = UINT64_MAX, left = UINT64_MAX;
};
GroupMemory memory_of_groups();

}  // namespace cube::base
