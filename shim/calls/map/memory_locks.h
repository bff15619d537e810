// mlockall of the program, as it would be without us. The region counts as mapped three times, and
// the kernel would refuse all of it (RLIMIT_MEMLOCK) or make all of it resident. So what is mapped
// now is locked piece by piece, without the region and the tables of open files; what comes later
// (MCL_FUTURE) is locked by the kernel, and ours is mapped before. Thread safety: all of it.
// Async-signal-safe.
#pragma once

namespace cube::shim::memory_locks {

// -1 and errno, as libc's. `kernels`: the call itself.
int lock_all(int flags, int (*kernels)(int flags));

}  // namespace cube::shim::memory_locks
