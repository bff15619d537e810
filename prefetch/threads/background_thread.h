// Threads of the library inside a host: all signals are the host's other threads' to take, stacks
// are small, scheduling is the program's and not that of the thread that started them
// (starter_traits.h), file descriptors are in a table that the host neither sees nor can close. No
// code of the host runs in them, whatever it has hooked: a second thread with the host's fd table
// makes and ends each (background_thread.cc). A body may therefore call nothing that a library can
// put itself in front of (tests/house/thread_calls_test.py). Thread safety: all of it.
#pragma once

#include <cstddef>

#include "cache/base/result.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {

// Starts a detached thread. `stack` is a wish: where libc needs more for thread-local storage, it
// gets more. 0 or an errno. A caller that starts many asks about their traits once.
int start_background_thread(void (*body)(void*), void* argument, std::size_t stack,
                            bool may_change = may_change_traits());

// Until all threads that were started so are gone, to the kernel too: some calls (unshare, setns)
// want a process to have one thread only. False: it took longer than this, and longer than 10 s
// where they need nothing but a processor.
bool wait_for_background_threads(unsigned at_most_ms);
// In a forked child, which has none of them.
void forget_background_threads();

// For the calling thread, and for threads that it starts from then on: an empty fd table of its
// own. Fails where the kernel, or a sandbox, does not have it; the thread must then open nothing,
// for its numbers would be the host's.
base::Result<bool> take_private_fd_table();

}  // namespace cube::prefetch
