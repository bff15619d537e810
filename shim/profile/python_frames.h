// The Python functions that led to a call. This code reads the frames of the calling thread
// directly from the memory of the interpreter. The frames do not change while the thread is in a
// call of this library, even if another thread has the GIL. CPython 3.9 to 3.13 are supported. In
// other versions, and in builds without a GIL, nothing is read. The code calls two functions of
// Python, which only read a variable of the thread. Thread-safe, except start(). Async-signal-safe
// if the interpreter completes a frame before it links it.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile::python {

// Determines whether the program is a Python interpreter, and if so, of which version.
void start();
// Stores the innermost frames in `stack`, as rows of the code table.
void walk(Tables& tables, Stack& stack);

}  // namespace cube::shim::profile::python
