// Redirects the libc calls of one library to our functions, by changing that library's table of
// addresses. The library is libunwind, which tests whether memory is readable by writing a byte of
// the memory to a pipe. If the program closed the pipe's fd and opened a file under it, the byte
// would be written to that file. In addition, libunwind must use libc's own locks. Not thread-safe:
// call it at the start of the process.
#pragma once

#include <cstddef>

struct link_map;

namespace cube::shim::profile {

struct OwnCall {
  const char* name;
  void* function;
};

// Redirects these calls. Returns how many of the functions the library calls.
std::size_t take_calls(const link_map& library, const OwnCall* calls, std::size_t count);

}  // namespace cube::shim::profile
