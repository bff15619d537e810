// Scheduling of the library's threads. The kernel gives a new thread the traits of the thread that
// starts it, and our threads are started by the program's thread that has the first cache miss. If
// that thread had a real-time policy, ours would take precedence over the whole program. If it were
// pinned to a processor, ours would share the busiest one. Assumption: the main thread's traits
// (chrt, nice, taskset) are meant for the whole program; the traits of other threads are not. Our
// threads keep all other inherited traits, because these belong to the program or cannot be
// obtained in another way. Such traits are identity and capabilities (a change of these ends our
// threads, see shim/libc/identity), umask and working directory, the control group, and the memory
// policy. Thread-safe.
#pragma once

namespace cube::prefetch {

// Call it in the thread that starts another one. The result is read from a file. The new thread
// must not read this file, because it still has the program's fd table: a short-lived fd could
// change the fd of the program's next file. The result is false in a sandbox, until a trial has
// shown that the calls below do not kill the process. A thread of the library reuses the answer
// from its own start, because these threads are ended before the process enters a sandbox
// (shim/libc/identity).
bool may_change_traits();

// Sets the traits of the calling thread as it starts: no real-time policy, a niceness at least the
// main thread's, at least the main thread's processors, the kernel's default timer slack. A trait
// that the kernel refuses to change stays as it is. `may_change`: the result of may_change_traits()
// in the starting thread.
void leave_traits_of_starter(bool may_change);

// Lowers the priority of the calling thread and of the threads that it starts: Sets SCHED_BATCH
// (SCHED_IDLE is kept, because it is even lower), a niceness higher by `by`, and the lowest I/O
// priority if an I/O priority was set explicitly (ionice).
void lower_priority(int by);

}  // namespace cube::prefetch
