// System calls by number that have a function in libc: they are forwarded to our export of it. For
// syscall.cc alone. Thread safety: as libc's.
#pragma once

namespace cube::shim {

// Returns false if the kernel must make the call.
bool forward_syscall(long number, const long (&arguments)[6], long& result);

}  // namespace cube::shim
