// Do the calls of the loaded libraries come to us? Not where a library was loaded with a scope of
// its own (RTLD_DEEPBIND), where somebody has rewritten the tables by which libraries call each
// other (UCX's hooks), or where a library in front of ours in LD_PRELOAD calls libc itself. On a
// served file such a call finds a placeholder: EBADF. Then the process is served as in mode real,
// and one line says which library it is. Each address that stands in such a table for read, mmap
// and their kin is ours, or the library's own (not bound yet), or libc's, or another library's. The
// last is called once, with the number of a file made for that, which tells whether it comes to us.
// Thread safety: all of it; one thread looks at a time. Not from a signal handler: the loader's
// lock is taken.
#pragma once

namespace cube::shim::loaded_calls {

// At load, while no other thread can have the loader's lock.
void start();
// As a process attaches, and after misses: at most once a second, for what was loaded or rewritten
// since.
void look_if_due();
// A library may get a scope of its own: files are served as in mode real until a look.
void before_dlopen(int flags);
// Before an open that is served as in mode real: whether it has to be, since a library with a scope
// of its own was loaded.
void look_if_doubted();

}  // namespace cube::shim::loaded_calls
