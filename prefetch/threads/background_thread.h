// Threads of the library inside a host. They leave all signals to the host's own threads and have
// small stacks. Their scheduling is the program's and not that of the thread that started them
// (starter_traits.h). They can have an fd table that the host can neither see nor close. No code of
// the host runs in them, even if it has hooked malloc or threads: for each of them, a second thread
// with the host's fd table runs what the host does as threads begin and end (background_thread.cc).
// A body may therefore call nothing that a library can interpose
// (tests/house/thread_calls_test.py). Thread-safe.
#pragma once

#include <cstddef>

#include "cache/base/result.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {

// Starts a detached thread. `stack` is a minimum: the thread gets more if libc needs more for
// thread-local storage. Returns 0 or an errno. A caller that starts many threads asks
// may_change_traits() once.
int start_background_thread(void (*body)(void*), void* argument, std::size_t stack,
                            bool may_change = may_change_traits());

// Waits until all threads started this way have ended and the kernel has removed them, because some
// calls (unshare, setns) require a process with a single thread. Returns false if some remain after
// `at_most_ms`. If each of those only needs a processor to end, it waits up to 10 s longer.
bool wait_for_background_threads(unsigned at_most_ms);
// Call in a forked child, which has none of the threads.
void forget_background_threads();

// Gives the calling thread an empty fd table, which the threads that it starts from then on share.
// Fails if the kernel or a sandbox does not allow it; the thread must then open nothing, because
// its fds would be in the host's table.
base::Result<bool> take_private_fd_table();

}  // namespace cube::prefetch
