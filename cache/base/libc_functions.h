// libc's own functions, even if a preloaded library interposes them. Threads with their own fd
// table call these functions. Such a thread must not run code of the host program, because that
// code would open its files in the thread's table. ThreadSanitizer must see each lock, so its
// interceptors are still called. Thread safety: set by a constructor, before there is a second
// thread.
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
  // The smallest stack that a thread can have. The size includes the thread-local storage of
  // libraries loaded at the start, which libc puts on the stack. Null if libc has no such function.
  std::size_t (*least_stack)(const pthread_attr_t*);
};
extern constinit LibcFunctions g_libc;

}  // namespace cube::base
