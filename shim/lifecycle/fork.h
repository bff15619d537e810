// The forks of this process, by any call: prepares what the child inherits, and changes the child's
// state. Thread-safe.
#pragma once

#include <cstdint>

namespace cube::shim::lifecycle {

// Call this around vfork, and around a clone that shares memory but not fds.
void expect_shared_memory_child();
// Call this before a fork, vfork, spawn or raw clone. Materializes the files that the child would
// inherit.
void prepare_child();
// Like prepare_child, but before a vfork. The child runs on its parent's memory and cannot attach,
// so it reports its changes through the parent's cache.
void prepare_vforked_child();
// Call this after a fork, in the parent. Handles files that other threads have opened for writing
// since prepare_child.
void end_fork();
// Like prepare_child, but before a clone with these flags.
void prepare_clone(std::uint64_t flags);
// Call this in the child of a fork.
void become_child();

// The handlers for pthread_atfork: prepare, parent and child. If another library registered its
// handlers earlier, its `prepare` runs after ours, and its `child` runs before ours. So a thread
// marks itself as forking. While the mark is set, the kernel answers the thread's opens. If a child
// is noticed before our handler runs, the mark shows that the child comes from libc's fork.
void before_libc_fork();
void after_libc_fork();
void in_libc_fork_child();

}  // namespace cube::shim::lifecycle
