// The transitions of this process: its start, a fork, a loss of rights, a sandbox, its end. They
// know every part of the shim that has to follow; process.h holds the state that they change.
// Thread safety: call start once; any thread may call the rest.
#pragma once

#include "shim/process/process.h"

namespace cube::shim::lifecycle {

// Called once, from the constructor. The one process that `speaks` for its job writes the report
// when it ends.
void start(const base::Config& config, const base::ProcessId& job, bool speaks);

// Call it before a call that changes what paths or permissions mean, if process::disable() follows.
// The region is found by the user's name, so a process that has no region by then could not report
// its changes.
void prepare_identity();
// Call it before a sandbox is entered from inside (seccomp), which may kill the process for any
// call that the program itself does not make. It materializes served files, writes the report,
// releases the cache, and from then on leaves every call to libc alone.
void seal();

// Call it around vfork and clones that share memory but not fds.
void expect_shared_memory_child();
// Call it before a child is made by fork, vfork, spawn or a raw clone: it materializes what the
// child would inherit.
void prepare_child();
// Like prepare_child, but before a vfork. The child runs on our memory and cannot attach: it
// reports its changes through our cache.
void prepare_vforked_child();
// Call it after a fork, in the parent: other threads may have opened files for writing since
// prepare_child.
void end_fork();
// Like prepare_child, but before a clone with these flags.
void prepare_clone(std::uint64_t flags);
// Call it in the child of a fork.
void become_child();

// Handlers around libc's fork, for pthread_atfork: prepare, parent and child. A library that has
// registered its handlers before us runs its `prepare` after ours, and its `child` before ours. So
// the thread notes that it forks: what it opens meanwhile goes to the kernel, and a child that
// shows itself before our handler runs is one of libc's.
void before_libc_fork();
void after_libc_fork();
void in_libc_fork_child();

// The program closes its stderr stream, as coreutils (timeout, nice ...) do before they end: this
// is the last moment to report there.
void stderr_ends();
// Reports if this process speaks for the job, and releases the cache. Called once, at exit or
// _exit.
void leave();

}  // namespace cube::shim::lifecycle
