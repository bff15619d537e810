// Was a sandbox put on this thread, which may kill for a system call that the program itself would not make? What can be done
// without such calls is done without them then. Thread safety and async-signal safety: yes; for what happens once.
#pragma once

#include <string_view>

#include "cache/base/sys.h"

namespace cube::base {

// Also yes where it cannot be told.
inline bool may_be_sandboxed() {
  char text[4096];
  const long n = sys::read_small_file("/proc/thread-self/status", text, sizeof text);
  if (sys::failed(n)) return true;
  return std::string_view(text, static_cast<std::size_t>(n)).find("\nSeccomp:\t0\n") == std::string_view::npos;
}

}  // namespace cube::base
