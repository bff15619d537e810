// Calls that a library makes of libc are given to functions of ours, for that library alone: its
// table of addresses is changed. libunwind tells whether memory can be read by a write into a pipe.
// The program could close that number and open a file by it, which would get the byte; and its
// locks must be libc's own. Thread safety: none; at the start of the process.
#pragma once

#include <cstddef>

struct link_map;

namespace cube::shim::profile {

struct OwnCall {
  const char* name;
  void* function;
};

// How many of these calls the library makes, and are ours from now on.
std::size_t take_calls(const link_map& library, const OwnCall* calls, std::size_t count);

}  // namespace cube::shim::profile
