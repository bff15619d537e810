#include "cache/base/libc_functions.h"

#include <arpa/inet.h>
#include <dlfcn.h>

#include <initializer_list>

#include "cache/base/newer_libc.h"
#include "cache/base/sanitizers.h"

namespace cube::base {

constinit LibcFunctions g_libc{pthread_mutex_lock,
                               pthread_mutex_unlock,
                               pthread_mutex_timedlock,
                               pthread_mutex_clocklock,
                               pthread_mutex_consistent,
                               ::inet_pton,
                               nullptr};

namespace {

template <typename Function>
void take(void* library, const char* name, Function*& function) {
  if (void* const found = dlsym(library, name); found != nullptr)
    function = reinterpret_cast<Function*>(found);
}

__attribute__((constructor)) void find_functions() {
  if (&__tsan_init != nullptr) return;
  // Before glibc 2.34, the pthread functions are in a separate library. dlopen opens no file,
  // because both libraries are already loaded.
  for (const char* const name : {"libc.so.6", "libpthread.so.0"}) {
    void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;
    take(library, "pthread_mutex_lock", g_libc.lock);
    take(library, "pthread_mutex_unlock", g_libc.unlock);
    take(library, "pthread_mutex_timedlock", g_libc.timedlock);
    take(library, "pthread_mutex_clocklock", g_libc.clocklock);
    take(library, "pthread_mutex_consistent", g_libc.consistent);
    take(library, "inet_pton", g_libc.inet_pton);
    take(library, "__pthread_get_minstack", g_libc.least_stack);
    dlclose(library);
  }
}

}  // namespace

}  // namespace cube::base
