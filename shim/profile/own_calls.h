// Redirects one library's calls of libc to functions of ours, by changing that library's table of
// addresses. To test whether memory is readable, libunwind writes a byte of it into a pipe. The
// program could close that fd and open a file under it, and the file would get the byte. In
// addition, libunwind's locks must be libc's own. Not thread-safe: call it at the start of the
// process.
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
