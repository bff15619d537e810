// The transitions of this process: its start, a fork, a loss of rights, a sandbox, its end. They
// know every part of the shim that has to follow; process.h holds the state that they change.
// Thread safety: start once; the rest from any thread.
#pragma once

#include "shim/process/process.h"

namespace cube::shim::lifecycle {

// From the constructor, once. The one process that `speaks` for its job writes the report when it
// ends.
void start(const base::Config& config, const base::ProcessId& job, bool speaks);

// Before a call that changes what paths or permissions mean, and for which process::disable()
// follows: the region is found by the user's name, and whoever has none by then could tell nobody
// of its changes.
void prepare_identity();
// Before a sandbox is put on from inside (seccomp): it may kill for any call that the program
// itself does not make. Served files become real, what is to be said is said, the cache is let go,
// and from then on every call is libc's alone.
void seal();

// Around vfork and clones that share memory but not fds.
void expect_shared_memory_child();
// Before a child is made by fork, vfork, spawn or a raw clone: what it would inherit becomes real.
void prepare_child();
// The same before a vfork. Its child runs on our memory and cannot attach: it tells of its changes
// by our cache.
void prepare_vforked_child();
// After a fork, in the parent: other threads may have opened files for writing since the
// preparation.
void end_fork();
// The same before a clone with these flags.
void prepare_clone(std::uint64_t flags);
// In the child of a fork.
void become_child();

// The same three around libc's fork, for pthread_atfork. A library that has registered its handlers
// before us runs its `prepare` after ours, and its `child` before ours. So the thread notes that it
// forks: what it opens meanwhile is the kernel's, and a child that shows itself before our handler
// is one of libc's.
void before_libc_fork();
void after_libc_fork();
void in_libc_fork_child();

// The program closes its stderr stream, as coreutils (timeout, nice ...) do before they end: the
// last moment to report there.
void stderr_ends();
// Reports if this process speaks for the job, and lets go of the cache. Once; at exit or _exit.
void leave();

}  // namespace cube::shim::lifecycle
