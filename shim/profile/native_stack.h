// The native stack of a call, found by libunwind, which is loaded only if the profiler is on.
// Frames of this library are omitted. libunwind has locks of its own, so a fork waits up to 10 ms
// until no thread is inside libunwind. If this wait was too short, or if another thread of the
// parent held the loader's lock, the child records no native stacks. Signals and cancellation are
// blocked during a walk. No walk is made if the stack has no room for libunwind. Thread-safe,
// except start(). Async-signal-safe, except that libunwind's thread-local data is allocated at a
// thread's first walk. If a signal handler makes the first walk, no stack is recorded.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile::native {

// Loads libunwind. If libunwind cannot be used, logs the reason in one line.
void start();
// Returns the address of a function in libunwind, by which a caller can recognize that library.
// Null if libunwind is not in use.
const void* library();
// Returns false if there is no stack. May change errno.
bool walk(Stack& stack);

void before_fork();
void after_fork();
void become_child();

}  // namespace cube::shim::profile::native
