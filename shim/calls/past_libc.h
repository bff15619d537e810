// Handles readers that bypass this library: the kernel thread of an io_uring, or code whose calls
// do not reach our functions. Such a reader would fail on placeholders (EBADF), so from then on the
// process is served as in mode real. Thread-safe.
#pragma once

#include <string_view>

#include "cache/base/log.h"

namespace cube::shim::past_libc {

// Makes all later opens return kernel files. Returns false if opens already do so, or if the
// process serves nothing.
bool begin();
void undo();
// After doubt(), opens return kernel files until a check decides: trust() if all calls reach this
// library, otherwise begin(). doubt() returns false if opens already return kernel files.
bool doubt();
bool is_doubted();
void trust();
// Materializes the open files, and logs the reason in one line, which ends with `consequence`.
void end(base::LogLevel level, const char* who, std::string_view call,
         std::string_view consequence = {});

// Makes the call that creates such a reader. Calls begin() before the call, so that no open after
// the call returns a placeholder. A negative result means that no reader was made.
template <typename Call>
auto with_reader(const char* who, Call&& call) {
  const bool is_new = begin();
  const auto result = call();
  if (result < 0 && is_new) undo();
  if (result >= 0 && is_new) end(base::LogLevel::info, who, "io_uring");
  return result;
}

// A program may make a ring by syscall() and enter it by inline assembly. So opens return kernel
// files from doubt_next_ring() on, until the program first enters the ring by syscall(), which
// calls trust_ring(). If the program closes the ring without entering it, opens return kernel files
// until a ring with the same fd is entered.
void doubt_next_ring();
// Call this with the fd of the new ring, or with a negative number if none was made.
void doubt_ring(int fd);
void trust_ring(int fd);

}  // namespace cube::shim::past_libc
