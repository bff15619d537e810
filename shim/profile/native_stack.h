// The native stack of a call, by libunwind, which is opened only where the profiler is on. Frames
// of this library are left out. A fork waits, 10 ms at most, until no thread is inside libunwind,
// which has locks of its own. A child of a fork that did not wait long enough has no native stacks,
// nor has one whose parent's other thread had the loader's lock. No handler and no cancellation
// comes in the midst of a walk, and none is made where the stack has no room for libunwind. Thread
// safety: all of it but start(). Async-signal-safe, with one exception: libunwind's thread-local
// data is allocated at a thread's first call, which is left out in a handler.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile::native {

// Says why in one line where there is no libunwind.
void start();
// A function of libunwind, whose calls of libc this library has replaced. Null: it is not in use.
const void* library();
// False: no stack could be had.
bool walk(Stack& stack);

void before_fork();
void after_fork();
void become_child();

}  // namespace cube::shim::profile::native
