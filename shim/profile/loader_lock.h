// The lock of the loader that libunwind takes when it asks for the libraries of the process.
// Another thread may hold it at a fork, and libc does not free it in the child: a thread that takes
// it there waits forever. Or another thread holds it in dl_iterate_phdr's callback, and waits there
// for this thread. The loader does not publish its lock, so it is found in the loader's data by its
// appearance while it is held. Thread safety: all of it except find(); async-signal-safe.
#pragma once

namespace cube::shim::profile::loader_lock {

// Called once. Finds nothing in a loader that keeps its lock in another way.
void find();
// True if this thread can have the lock within 10 ms. A thread that keeps it longer is waited for
// once.
bool is_free_soon();
// For the child of a fork: true if a thread that is not in the child holds the lock.
bool is_held_for_good();

}  // namespace cube::shim::profile::loader_lock
