// Does a signal handler run on this thread? Some calls of libc (pthread_create) take locks and
// memory that the interrupted code may be in the middle of, so they must wait until no handler
// runs. Costs about a hundred system calls: for what happens once, not for an open. Says yes where
// it cannot be told. Also says yes where a handled signal is blocked and the stack holds an old
// word by which a frame is known: on x86-64 an action that sigaction has reported, on aarch64 a
// return address into the vdso. A handler that unblocks its own signal is not seen, unless the
// signal was installed with SA_NODEFER. Thread safety and async-signal safety: yes.
#pragma once

namespace cube::base {

// By a thread that may be the program's first: its stack is another than those that libc makes.
// Once.
void remember_first_thread();

bool may_be_in_handler();

}  // namespace cube::base
