// The forks of this process, by whatever call: what a child must not inherit, and how the child's
// state changes. Thread-safe.
#pragma once

#include <cstdint>

namespace cube::shim::lifecycle {

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
// the thread marks itself as forking: the kernel answers its opens meanwhile, and a child that is
// noticed before our handler runs is known to be a child of libc's fork.
void before_libc_fork();
void after_libc_fork();
void in_libc_fork_child();

}  // namespace cube::shim::lifecycle
