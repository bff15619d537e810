#include "cache/base/clock.h"

#include <dlfcn.h>

#include "cache/base/sys.h"

namespace cube::base {
namespace {

int ask_kernel(clockid_t id, timespec* t) { return static_cast<int>(sys::raw(SYS_clock_gettime, id, sys::arg(t))); }

__attribute__((constructor)) void find_clock() {
  // By name, for the next clock_gettime after ours may be another library's. It is loaded already, so nothing is opened.
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return;
  if (void* const found = dlsym(libc, "clock_gettime"); found != nullptr)
    g_clock_gettime.store(reinterpret_cast<int (*)(clockid_t, timespec*)>(found), std::memory_order_relaxed);
  dlclose(libc);
}

}  // namespace

constinit std::atomic<int (*)(clockid_t, timespec*)> g_clock_gettime{ask_kernel};

}  // namespace cube::base
