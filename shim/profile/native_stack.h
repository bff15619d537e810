// The native stack of a call, by libunwind, which is loaded only if the profiler is on. Frames of
// this library are left out. A fork waits, 10 ms at most, until no thread is inside libunwind,
// which has locks of its own. A child has no native stacks if the fork did not wait long enough, or
// if another thread of the parent held the loader's lock. Signals and cancellation are blocked
// during a walk, and no walk is made if the stack has no room for libunwind. Thread-safe, except
// start(). Async-signal-safe, with one exception: libunwind's thread-local data is allocated at a
// thread's first call, so if that call comes from a handler, no stack is recorded.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile::native {

// If libunwind cannot be used, one line says why.
void start();
// A function of libunwind, whose calls to libc this library has replaced. Null if libunwind is not
// in use.
const void* library();
// Returns false if there is no stack.
bool walk(Stack& stack);

void before_fork();
void after_fork();
void become_child();

}  // namespace cube::shim::profile::native
