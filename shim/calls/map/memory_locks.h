// mlockall with the effect that it would have without this library. The region is mapped three
// times, so the kernel would refuse to lock all memory (RLIMIT_MEMLOCK), or would make the region
// resident. So the existing mappings are locked one by one, except the library, its tables and the
// region. The kernel locks later mappings (MCL_FUTURE), so the library first makes its own
// mappings. Thread-safe and async-signal-safe.
#pragma once

namespace cube::shim::memory_locks {

// Like mlockall, returns 0, or -1 and sets errno. `kernels` makes the system call.
int lock_all(int flags, int (*kernels)(int flags));

}  // namespace cube::shim::memory_locks
