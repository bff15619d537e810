// The Python functions that led to a call: reads the frames of the calling thread's own interpreter
// state as they lie in memory. They do not change while their thread is in a call of ours, with or
// without the GIL. CPython 3.9 to 3.13 are supported; in other versions, and in one built without a
// GIL, nothing is read. Only two functions of Python are called, and they only read a variable of
// the thread. Thread-safe, except start(). Async-signal-safe, provided that the interpreter links a
// frame after it is complete.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile::python {

// Finds out whether the program is a Python, and of which version.
void start();
// Stores the innermost frames, as rows of the table of codes.
void walk(Tables& tables, Stack& stack);

}  // namespace cube::shim::profile::python
