// Redirects one library's calls of libc to our functions, by changing that library's table of
// addresses. This is for libunwind: to test whether memory is readable, it writes a byte of that
// memory into a pipe. The program could close the pipe's fd and open a file under it, which would
// then get the byte. In addition, libunwind's locks must be libc's own. Not thread-safe: call it at
// the start of the process.
#pragma once

#include <cstddef>

struct link_map;

namespace cube::shim::profile {

struct OwnCall {
  const char* name;
  void* function;
};

// Redirects these calls. Returns how many of these functions the library calls.
std::size_t take_calls(const link_map& library, const OwnCall* calls, std::size_t count);

}  // namespace cube::shim::profile
