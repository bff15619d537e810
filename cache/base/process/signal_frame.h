// Tells whether a signal handler runs on this thread. Some libc calls (pthread_create) take locks
// and memory that the interrupted code may be using, so they must wait until no handler runs. A
// check costs about a hundred system calls: it is for code that runs once, not for an open.
// Thread-safe and async-signal-safe. Returns true if this cannot be determined. It can also be
// wrong: it returns true if a handled signal is blocked and the stack holds a stale word that looks
// like the mark of a frame (on x86-64 the restorer of an action that sigaction has reported, on
// aarch64 a return address into the vdso). A handler that unblocks its own signal is not seen,
// unless the signal was installed with SA_NODEFER.
#pragma once

namespace cube::base {

// Called once, by a thread that may be the program's first. The first thread's stack differs from
// the stacks that libc makes.
void remember_first_thread();

bool may_be_in_handler();

}  // namespace cube::base
