// Tells whether a signal handler runs on this thread. Some libc calls (pthread_create) use locks
// and memory that the interrupted code may be using, so the library must not make them while a
// handler runs. A check costs about a hundred system calls, so only code that runs once makes it.
// Thread-safe and async-signal-safe. may_be_in_handler() returns true if the answer cannot be
// determined. It also returns true, wrongly, if a handled signal is blocked and the stack holds a
// stale word that looks like the mark of a frame. On x86-64 that word is the restorer of an action
// that sigaction has reported; on aarch64 it is a return address into the vdso. A handler that
// unblocks its own signal is detected only if it was installed with SA_NODEFER.
#pragma once

namespace cube::base {

// Called once, by a thread that may be the program's first thread. The stack of that thread differs
// from the stacks that libc creates.
void remember_first_thread();

bool may_be_in_handler();

}  // namespace cube::base
