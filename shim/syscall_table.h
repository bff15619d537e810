// System calls by number, for programs that call syscall() themselves: which of their arguments are fds, and what else they
// mean for us. Thread safety: constants.
#pragma once

#include <cstdint>

namespace cube::shim {

enum class SyscallKind : std::uint8_t { one_fd, two_fds, makes_fd, closes, forks, identity, sandbox, everything };
struct SyscallRow {
  long number;
  SyscallKind kind;
  int first = 0, second = 0;  // positions of fds
};

// Null: it has nothing to do with fds. One that is newer than the table may have to do with all of them.
const SyscallRow* syscall_row_of(long number);

}  // namespace cube::shim
