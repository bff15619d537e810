// Threads of the library inside a host. These threads block all signals and have small stacks. They
// are scheduled like the main thread, not like the thread that started them (starter_traits.h).
// They can have an fd table that the host can neither see nor close. No host code runs in them,
// even if the host has hooked malloc or threads. For each library thread, a second thread with the
// host's fd table runs the host's hooks for the beginning and the end of a thread
// (background_thread.cc). A body must therefore not call any function that a library can interpose
// (tests/house/thread_calls_test.py). Thread-safe.
#pragma once

#include <cstddef>

#include "cache/base/result.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {

// Starts a detached thread. `stack` is a minimum: the stack is larger if libc needs more for
// thread-local storage. Returns 0 or an errno. A caller that starts many threads should call
// may_change_traits() only once, and pass the result.
int start_background_thread(void (*body)(void*), void* argument, std::size_t stack,
                            bool may_change = may_change_traits());

// Waits until all threads started this way have ended and the kernel has removed them, because some
// calls (unshare, setns) require a process with a single thread. Returns false if some remain after
// `at_most_ms`. If each remaining thread only needs a processor to end, the function waits up to 10
// s longer.
bool wait_for_background_threads(unsigned at_most_ms);
// Call in a forked child, which has none of the threads.
void forget_background_threads();

// Gives the calling thread an empty fd table. Threads that it starts later share this table. Fails
// if the kernel or a sandbox does not allow the call. The thread must then open nothing, because
// its fds would be in the host's table.
base::Result<bool> take_private_fd_table();

}  // namespace cube::prefetch
