// Handles readers that bypass this library: the kernel thread of an io_uring, or code whose calls
// do not reach our functions. They would find placeholders (EBADF), so from then on the process is
// served as in mode real. Thread-safe.
#pragma once

#include <string_view>

#include "cache/base/log.h"

namespace cube::shim::past_libc {

// Opens get kernel files from now on. Returns false if that changes nothing.
bool begin();
void undo();
// From doubt() on, opens get kernel files until a check has decided: trust() if all calls reach us,
// otherwise begin(). doubt() returns false if opens already get kernel files.
bool doubt();
bool is_doubted();
void trust();
// Materializes files that are open already; one line says why.
void end(base::LogLevel level, const char* who, std::string_view call);

// Wraps the call that makes such a reader, because no open may come between begin() and the call. A
// negative result means that no reader was made.
template <typename Call>
auto with_reader(const char* who, Call&& call) {
  const bool is_new = begin();
  const auto result = call();
  if (result < 0 && is_new) undo();
  if (result >= 0 && is_new) end(base::LogLevel::info, who, "io_uring");
  return result;
}

}  // namespace cube::shim::past_libc
