#include "shim/profile/loader_lock.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cache/base/clock.h"
#include "cache/base/sys.h"

namespace cube::shim::profile::loader_lock {
namespace {

constinit const pthread_mutex_t* g_lock = nullptr;

struct Search {
  std::uintptr_t begin, end;  // the bounds of the loader's data
  int thread;
  const pthread_mutex_t* found;
};

constinit std::atomic<bool> g_is_kept_long{false};

// The load is atomic, because other threads may take the lock at any time.
int now(const int& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }
bool is_free(const pthread_mutex_t& lock) {
  return now(lock.__data.__lock) == 0 && now(lock.__data.__owner) == 0;
}

// Finds a mutex that this thread has locked exactly once. The loader's other locks have the same
// form, but are free now, because no library is being loaded.
const pthread_mutex_t* held_one(const Search& search) {
  for (std::uintptr_t at = search.begin; at + sizeof(pthread_mutex_t) <= search.end;
       at += alignof(pthread_mutex_t)) {
    const auto* const lock =
        reinterpret_cast<const pthread_mutex_t*>(at);  // NOLINT(performance-no-int-to-ptr)
    if (lock->__data.__lock != 0 && lock->__data.__count == 1 &&
        lock->__data.__owner == search.thread &&
        (lock->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE)
      return lock;
  }
  return nullptr;
}

}  // namespace

void find() {
  if (g_lock != nullptr) return;
  void* const data = dlsym(RTLD_DEFAULT, "_rtld_global");
  Dl_info info;
  void* symbol = nullptr;
  if (data == nullptr || dladdr1(data, &info, &symbol, RTLD_DL_SYMENT) == 0 || symbol == nullptr)
    return;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  Search search{begin, begin + static_cast<const ElfW(Sym)*>(symbol)->st_size,
                static_cast<int>(base::sys::raw(SYS_gettid)), nullptr};
  dl_iterate_phdr(
      [](struct ::dl_phdr_info*, size_t, void* given) {
        auto& look = *static_cast<Search*>(given);
        look.found = held_one(look);
        return 1;
      },
      &search);
  if (search.found != nullptr && is_free(*search.found)) g_lock = search.found;
}

bool is_free_soon() {
  if (g_lock == nullptr) return true;
  const auto is_for_us = [] {
    return is_free(*g_lock) ||
           now(g_lock->__data.__owner) == static_cast<int>(base::sys::raw(SYS_gettid));
  };
  constexpr std::uint64_t k_longest_ns = 10'000'000;
  for (std::uint64_t until = 0; !is_for_us(); sched_yield()) {
    if (g_is_kept_long.load(std::memory_order_relaxed)) return false;
    if (until == 0) until = base::monotonic_ns() + k_longest_ns;
    if (base::monotonic_ns() > until) g_is_kept_long.store(true, std::memory_order_relaxed);
  }
  if (g_is_kept_long.load(std::memory_order_relaxed)) [[unlikely]]
    g_is_kept_long.store(false, std::memory_order_relaxed);
  return true;
}

bool is_held_for_good() { return g_lock != nullptr && !is_free(*g_lock); }

}  // namespace cube::shim::profile::loader_lock
