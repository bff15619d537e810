// Tests whether the dynamic loader's lock is free. libunwind takes this lock when it asks for the
// libraries of the process. In two cases, libunwind would wait forever. First, if another thread
// holds the lock at a fork, libc does not release it in the child. Second, another thread may hold
// the lock in the callback of dl_iterate_phdr and wait there for this thread. The loader does not
// publish its lock, so find() searches the loader's data for a word that looks like a held lock.
// Thread-safe, except find(). Async-signal-safe.
#pragma once

namespace cube::shim::profile::loader_lock {

// Call this once. Finds nothing if the loader's lock has another form.
void find();
// Waits up to 10 ms for the lock to become free, and returns true if it does. If the lock stays
// held, later calls no longer wait.
bool is_free_soon();
// Call this in the child of a fork. True if a thread that exists only in the parent holds the lock.
bool is_held_for_good();

}  // namespace cube::shim::profile::loader_lock
