// Checks whether calls from the loaded libraries reach this library. A call bypasses this library
// in three cases: the caller was loaded with its own scope (RTLD_DEEPBIND); another library has
// rewritten the address tables through which libraries call each other (UCX's hooks); or a library
// before ours in LD_PRELOAD calls libc directly. In the first case, the address in the caller's
// table belongs to libc, and the check replaces it with the address of our function
// (loaded_slots.h). In the other cases, the address of read, mmap or a similar function belongs to
// some other library. The check then calls the function on a test fd, and observes whether the call
// reaches this library. A call that bypasses this library would fail on a placeholder (EBADF). So
// if such a call remains, the process is served as in mode real, and a log line names the library.
// Thread-safe; one thread checks at a time. Not async-signal-safe, because the check takes the
// loader's lock.
#pragma once

namespace cube::shim::loaded_calls {

// Call this at load, when no other thread can hold the loader's lock.
void start();
// Call this when a process attaches and after misses. At most once a second, checks the libraries
// and tables that have changed since the last check.
void look_if_due();
// Call this before dlopen. If the flags give the library its own scope, files are served as in mode
// real until the next check.
void before_dlopen(int flags);
// Call this before dlsym: a program needs dlsym before it can call a library that it has loaded. If
// the program has ever loaded a library with its own scope, checks the new libraries.
void look_if_changed();
// Call this before an open that is served as in mode real. If before_dlopen() has chosen mode real
// as a precaution, checks whether mode real is necessary.
void look_if_doubted();

}  // namespace cube::shim::loaded_calls
