// System calls by number that mean what functions of libc mean: our exports know the consequences.
// For syscall.cc alone. Thread safety: as libc's.
#pragma once

namespace cube::shim {

// Returns false if the kernel must make the call.
bool forward_syscall(long number, const long (&arguments)[6], long& result);

}  // namespace cube::shim
