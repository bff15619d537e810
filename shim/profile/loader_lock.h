// The loader's lock. libunwind takes it when it asks for the libraries of the process. Another
// thread may hold it at a fork, and libc does not release it in the child: a thread of the child
// that takes it waits forever. Another thread may also hold it in dl_iterate_phdr's callback, and
// wait there for this thread. The loader does not publish its lock, so this code searches the
// loader's data for a word that looks like a held lock. Thread-safe, except find();
// async-signal-safe.
#pragma once

namespace cube::shim::profile::loader_lock {

// Call it once. Finds nothing if the loader's lock has another form.
void find();
// True if this thread could take the lock within 10 ms. If another thread keeps it for longer,
// later calls no longer wait.
bool is_free_soon();
// In the child of a fork, true if the lock is held by a thread that exists only in the parent.
bool is_held_for_good();

}  // namespace cube::shim::profile::loader_lock
