// The lock of the loader that libunwind takes when it asks for the libraries of the process.
// Another thread may hold it at a fork, and libc does not free it in the child: who takes it there
// waits for ever. Or it holds it in dl_iterate_phdr's callback, and waits there for this thread.
// The loader tells nobody of its lock, so it is found in the loader's data by what it looks like
// while it is held. Thread safety: all of it but find(); async-signal-safe.
#pragma once

namespace cube::shim::profile::loader_lock {

// Called once. It finds nothing in a loader that keeps its lock in another way.
void find();
// Can this thread have it, within 10 ms? A thread that keeps it longer is waited for once.
bool is_free_soon();
// In the child of a fork: is it held by a thread that is not here?
bool is_held_for_good();

}  // namespace cube::shim::profile::loader_lock
