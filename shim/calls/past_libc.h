// Somebody in this process reads fds by ways that never come to us: the kernel's thread of a ring
// (io_uring), or code whose calls do not reach our functions. It would find placeholders (EBADF).
// From then on the process is served as in mode real. Thread safety: all of it.
#pragma once

#include <string_view>

#include "cache/base/log.h"

namespace cube::shim::past_libc {

// Opens get kernel files from now on. False: so it was before.
bool begin();
void undo();
// Opens get kernel files until somebody has looked: trust() where all calls come to us, else
// begin(). doubt() is false where they get them already.
bool doubt();
bool is_doubted();
void trust();
// Files that are open already become kernel files, too; one line says why.
void end(base::LogLevel level, const char* who, std::string_view call);

// Around the call that makes such a reader, which it does unless it is negative: no open may lie
// between the two.
template <typename Call>
auto with_reader(const char* who, Call&& call) {
  const bool is_new = begin();
  const auto result = call();
  if (result < 0 && is_new) undo();
  if (result >= 0 && is_new) end(base::LogLevel::info, who, "io_uring");
  return result;
}

}  // namespace cube::shim::past_libc
