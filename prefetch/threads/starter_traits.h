// Scheduling of the library's threads. The kernel gives a new thread what the starting thread has,
// and ours are started by whichever thread of the program misses first. Its real-time policy would
// put them above the whole program, its one processor is the busiest. Assumption: what the main
// thread has is a wish for the program (chrt, nice, taskset); what another thread has is not.
// Inherited, and left so, for each is of the program or can be had no other way: identity and
// capabilities (a change of them ends our threads, shim/libc/identity), umask and working
// directory, the control group, the memory policy. Thread safety: all of it.
#pragma once

namespace cube::prefetch {

// Asked by the thread that starts another, for the answer is read from a file: the new thread has
// the program's fd table still, where a number that is in use for a moment changes the number of
// the program's next file. False in a sandbox, unless a trial has told that the calls below do not
// kill. A thread of the library has the answer from its own start: a sandbox that is put on the
// process later ends these threads first (shim/libc/identity).
bool may_change_traits();

// For the calling thread, as it starts: no real-time policy, not above the main thread's niceness,
// at least the main thread's processors, the kernel's default timer slack. The kernel may refuse,
// and a trait then stays. `may_change`: as the starter has found.
void leave_traits_of_starter(bool may_change);

// For the calling thread and those that it starts: SCHED_BATCH unless SCHED_IDLE is lower still, so
// much more niceness, and the lowest disk priority if somebody has chosen one (ionice).
void lower_priority(int by);

}  // namespace cube::prefetch
