// Checks whether calls from the loaded libraries reach this library. Three things prevent it: a
// library loaded with a scope of its own (RTLD_DEEPBIND); another library that rewrites the address
// tables through which libraries call each other (UCX's hooks); or a library before ours in
// LD_PRELOAD that calls libc directly. Such a call would fail on a placeholder (EBADF). So if the
// check finds one, the process is served as in mode real, and a log line names the library. The
// address that a table holds for read, mmap and the like leads to this library, to the caller's own
// library (not bound yet), to libc, or to a fourth library. A function of a fourth library is
// called once on a test fd, to see whether the call reaches this library. Thread-safe; one thread
// checks at a time. Not async-signal-safe, because the check takes the loader's lock.
#pragma once

namespace cube::shim::loaded_calls {

// Call this at load, when no other thread can hold the loader's lock.
void start();
// Call this when a process attaches and after misses. At most once a second, checks the libraries
// and tables that have changed since the last check.
void look_if_due();
// Call this before dlopen. If its flags give a library a scope of its own, files are served as in
// mode real until the next check.
void before_dlopen(int flags);
// Call this before an open that is served as in mode real. Checks whether a library with a scope of
// its own makes mode real necessary.
void look_if_doubted();

}  // namespace cube::shim::loaded_calls
