// Forwards a system call by number to this library's function of the same name, if libc has such a
// function. Only for syscall.cc. Thread safety: as libc's.
#pragma once

namespace cube::shim {

// Returns false if the kernel must make the call.
bool forward_syscall(long number, const long (&arguments)[6], long& result);

}  // namespace cube::shim
