// Checks whether the calls of the loaded libraries reach this library. They do not if a library was
// loaded with a scope of its own (RTLD_DEEPBIND), if another library has rewritten the tables
// through which libraries call each other (UCX's hooks), or if a library before ours in LD_PRELOAD
// calls libc itself. On a served file such a call finds a placeholder: EBADF. The process is then
// served as in mode real, and one line names the library. For read, mmap and the like, an address
// in such a table is ours, the library's own (not bound yet), libc's, or another library's. A
// function of another library is called once, on an fd made for this purpose, which shows whether
// the call reaches this library. Thread-safe; one thread checks at a time. Not for signal handlers:
// it takes the loader's lock.
#pragma once

namespace cube::shim::loaded_calls {

// Called at load, while no other thread can hold the loader's lock.
void start();
// Called when a process attaches, and after misses: checks at most once a second what was loaded or
// rewritten since.
void look_if_due();
// Call it before a dlopen that may load a library with its own scope: files are served as in mode
// real until the next check.
void before_dlopen(int flags);
// Call it before an open that is served as in mode real: checks whether a library with a scope of
// its own has made that necessary.
void look_if_doubted();

}  // namespace cube::shim::loaded_calls
