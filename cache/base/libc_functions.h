// libc's own functions, even if a preloaded library interposes them. Some threads of the library
// have their own fd table. Code of the host program must not run in such a thread, because this
// code would open its files in the wrong table. In a program with ThreadSanitizer, these pointers
// lead to its interceptors, because ThreadSanitizer must see each lock. Thread safety: a
// constructor sets the pointers before the process has a second thread.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <ctime>

namespace cube::base {

struct LibcFunctions {
  int (*lock)(pthread_mutex_t*);
  int (*unlock)(pthread_mutex_t*);
  int (*timedlock)(pthread_mutex_t*, const timespec*);
  int (*clocklock)(pthread_mutex_t*, clockid_t, const timespec*);  // null before glibc 2.30
  int (*consistent)(pthread_mutex_t*);
  int (*inet_pton)(int, const char*, void*);
  // Returns the smallest possible stack size of a thread. This size includes the thread-local
  // storage of the libraries that were loaded at the start, because libc puts that storage on the
  // stack. Null: libc has no such function.
  std::size_t (*least_stack)(const pthread_attr_t*);
};
extern constinit LibcFunctions g_libc;

}  // namespace cube::base
