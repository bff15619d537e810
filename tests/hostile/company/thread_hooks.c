// For LD_PRELOAD: hooks the functions that memory profilers, allocators and tracers hook, in front
// of libc. At the end of the process, it prints which hooks were called in a thread whose fd table
// is not the process's. An fd that a hook opens in such a thread is another file in the program's
// own table (memray --native, heaptrack and tcmalloc unwind in malloc, and libunwind keeps a pipe).
#define _GNU_SOURCE
#include <dlfcn.h>

#include <errno.h>
#include <link.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { k_most_names = 64 };
static const char* volatile g_origin_metadata[k_most_names];

static void look(const char* name) {
  const int before = errno;
  const long pid = syscall(SYS_getpid), self = syscall(SYS_gettid);
  if (self == pid || syscall(SYS_kcmp, pid, self, KCMP_FILES, 0, 0) == 0) {
    errno = before;
    return;
  }
  for (int i = 0; i < k_most_names; ++i) {
    const char* none = NULL;
    if (__atomic_compare_exchange_n(&g_origin_metadata[i], &none, name, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE) ||
        none == name)
      break;
  }
  errno = before;
}

__attribute__((destructor)) static void tell(void) {
  for (int i = 0; i < k_most_names && g_origin_metadata[i] != NULL; ++i) {
    char line[200];
    const int n =
        snprintf(line, sizeof line, "hooks: %s is called in a thread with another fd table\n",
                 g_origin_metadata[i]);
    (void)!write(2, line, (size_t)n);
  }
}

#define HOOK(result, name, parameters, ...)                                 \
  result name parameters {                                                  \
    static result(*real) parameters;                                        \
    if (real == NULL) real = (result(*) parameters)dlsym(RTLD_NEXT, #name); \
    look(#name);                                                            \
    return real(__VA_ARGS__);                                               \
  }

// These are libc's own names for the functions. dlsym cannot be used, because it allocates.
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
void* malloc(size_t n) {
  look("malloc");
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  look("calloc");
  return __libc_calloc(n, size);
}
void* realloc(void* at, size_t n) {
  look("realloc");
  return __libc_realloc(at, n);
}
void* memalign(size_t alignment, size_t n) {
  look("memalign");
  return __libc_memalign(alignment, n);
}
void free(void* at) {
  look("free");
  __libc_free(at);
}

HOOK(int, pthread_mutex_lock, (pthread_mutex_t * m), m)
HOOK(int, pthread_mutex_unlock, (pthread_mutex_t * m), m)
HOOK(int, pthread_mutex_trylock, (pthread_mutex_t * m), m)
HOOK(int, pthread_mutex_timedlock, (pthread_mutex_t * m, const struct timespec* t), m, t)
HOOK(int, pthread_mutex_clocklock, (pthread_mutex_t * m, clockid_t c, const struct timespec* t), m,
     c, t)
HOOK(int, pthread_mutex_consistent, (pthread_mutex_t * m), m)
HOOK(int, pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t* m), c, m)
HOOK(int, pthread_cond_clockwait,
     (pthread_cond_t * c, pthread_mutex_t* m, clockid_t k, const struct timespec* t), c, m, k, t)
HOOK(int, pthread_cond_signal, (pthread_cond_t * c), c)
HOOK(int, pthread_cond_broadcast, (pthread_cond_t * c), c)
HOOK(int, pthread_once, (pthread_once_t * once, void (*f)(void)), once, f)
HOOK(int, pthread_attr_init, (pthread_attr_t * a), a)
HOOK(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* before), how, set, before)
HOOK(int, dl_iterate_phdr, (int (*f)(struct dl_phdr_info*, size_t, void*), void* data), f, data)
HOOK(int, dladdr, (const void* at, Dl_info* info), at, info)
HOOK(void*, dlopen, (const char* name, int flags), name, flags)
HOOK(int, clock_gettime, (clockid_t id, struct timespec* t), id, t)
HOOK(char*, strerror, (int e), e)
HOOK(char*, getenv, (const char* name), name)
HOOK(char*, getcwd, (char* to, size_t n), to, n)
HOOK(void, qsort, (void* at, size_t n, size_t size, int (*f)(const void*, const void*)), at, n,
     size, f)
HOOK(int, sched_yield, (void))
HOOK(int, inet_pton, (int family, const char* text, void* to), family, text, to)

// Wraps threads like a profiler, whose code runs before the thread's function, after it, and when
// thread-specific data is destroyed.
struct start {
  void* (*body)(void*);
  void* argument;
};
static pthread_key_t g_key;
static void end_key(void* value) {
  (void)value;
  look("the destructor of a thread");
}
__attribute__((constructor)) static void make_key(void) { pthread_key_create(&g_key, end_key); }
static void* run(void* of) {
  const struct start start = *(struct start*)of;
  free(of);
  look("the wrapper of a thread, at its start");
  pthread_setspecific(g_key, (void*)1);
  void* const result = start.body(start.argument);
  look("the wrapper of a thread, at its end");
  return result;
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (real == NULL)
    real = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(
        RTLD_NEXT, "pthread_create");
  look("pthread_create");
  struct start* const start = malloc(sizeof *start);
  *start = (struct start){body, argument};
  return real(thread, attributes, run, start);
}
