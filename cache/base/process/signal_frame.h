// Tells whether a signal handler runs on this thread. Some libc calls (pthread_create) use locks
// and memory that the interrupted code may be using, so the library must not make them while a
// handler runs. A check costs about a hundred system calls, so only code that runs rarely makes
// this check. Thread-safe and async-signal-safe. may_be_in_handler() also returns true if the
// answer cannot be determined. The result can be wrong in two cases. First, a handler that unblocks
// its own signal is not detected if it was installed without SA_NODEFER. Second, the result is
// wrongly true if a signal that has a handler is blocked and the stack holds a stale word of a
// signal frame. On x86-64, such a word is the address of a signal restorer. On aarch64, such a word
// is a return address into the vdso.
#pragma once

#include <cstdint>

namespace cube::base {

// Call it once, in a thread that may be the program's first. The first thread's stack starts
// elsewhere than a stack that libc has created, so may_be_in_handler() must know the first thread.
void remember_first_thread();

// Searches the stack only up to the address `until`, so finds only a handler whose frame lies below
// it.
bool may_be_in_handler(std::uintptr_t until = UINTPTR_MAX);

}  // namespace cube::base
