// The Python functions that led to a call: the frames of the calling thread's own interpreter
// state, read as they lie in memory. They do not change while their thread is in a call of ours,
// with the GIL or without it. Known are CPython 3.9 to 3.13; in any other, and in one without a
// GIL, nothing is read. No function of Python is called but two that only look at a variable of the
// thread. Thread safety: all of it but start(). Async-signal-safe, as far as the interpreter links
// a frame after it is whole.
#pragma once

#include "shim/profile/tables.h"

namespace cube::shim::profile::python {

// Looks whether the program is a Python, and which. `tables`: of a thread's code.
void start();
// The innermost frames, as rows of the table of codes.
void walk(Tables& tables, Stack& stack);

}  // namespace cube::shim::profile::python
