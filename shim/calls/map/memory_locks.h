// The program's mlockall, with the effect that it would have without this library. The region
// counts as mapped three times, and the kernel would refuse all of it (RLIMIT_MEMLOCK) or make all
// of it resident. So current mappings are locked piece by piece, without the region and the tables
// of open files; the kernel locks later ones (MCL_FUTURE), and ours are mapped before that.
// Thread-safe. Async-signal-safe.
#pragma once

namespace cube::shim::memory_locks {

// Returns 0, or -1 and errno, like libc. `kernels` makes the kernel's own call.
int lock_all(int flags, int (*kernels)(int flags));

}  // namespace cube::shim::memory_locks
