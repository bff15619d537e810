// Scheduling of the library's threads. The kernel gives a new thread the traits of the thread that
// starts it, and the thread of the program that misses first starts ours. If that thread had a
// real-time policy, ours would take precedence over the whole program. If it were pinned to a
// processor, ours would share the busiest one. Assumption: the main thread's traits (chrt, nice,
// taskset) are meant for the whole program, unlike those of other threads. The threads keep other
// inherited traits, because these belong to the program or cannot be obtained in another way:
// identity and capabilities (a change of them ends our threads, shim/libc/identity), umask and
// working directory, the control group, the memory policy. Thread-safe.
#pragma once

namespace cube::prefetch {

// Call it in the thread that starts another one. The result is read from a file. The new thread
// must not read it, because it still has the program's fd table: its short-lived fd could change
// the fd of the program's next file. False in a sandbox, unless a trial has shown that the calls
// below do not kill the process. A thread of the library keeps the answer from its own start,
// because these threads are ended before the process enters a sandbox (shim/libc/identity).
bool may_change_traits();

// Sets the traits of the calling thread as it starts: no real-time policy, a niceness at least the
// main thread's, at least the main thread's processors, the kernel's default timer slack. If the
// kernel refuses, a trait stays as it is. `may_change`: the result of may_change_traits() in the
// starter.
void leave_traits_of_starter(bool may_change);

// Lowers the priority of the calling thread and of those that it starts: SCHED_BATCH (unless
// SCHED_IDLE, which is lower still), `by` more niceness, and the lowest I/O priority if one was set
// explicitly (ionice).
void lower_priority(int by);

}  // namespace cube::prefetch
