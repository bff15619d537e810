// preload_helper's commands that unwind frames of the library, or interrupt it.
#pragma once

#include <string>
#include <vector>

using Arguments = std::vector<std::string>;

// cancel FILE THREADS: so many threads are cancelled in each of some calls that libc answers.
int do_cancel(const Arguments& a);
// throw DIRECTORY: a filter of scandir throws; says that it was caught.
int do_throw(const Arguments& a);
// lowest FILE ROUNDS: a handler opens the served FILE in the midst of calls that close a number, each of them so many times; the
// next number is the lowest.
int do_lowest(const Arguments& a);
