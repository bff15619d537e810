// A mutex for the threads of this process. The mutex uses only a futex, because a preloaded library
// can interpose the functions of a pthread mutex (libc_functions.h). Use it with std::lock_guard,
// std::scoped_lock and std::unique_lock. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

class Mutex {
 public:
  void lock() {
    std::uint32_t state = free;
    if (state_.compare_exchange_strong(state, held, std::memory_order_acquire)) return;
    while (state_.exchange(awaited, std::memory_order_acquire) != free)
      sys::futex_wait(&state_, awaited);
  }
  bool try_lock() {
    std::uint32_t state = free;
    return state_.compare_exchange_strong(state, held, std::memory_order_acquire);
  }
  void unlock() {
    if (state_.exchange(free, std::memory_order_release) == awaited) sys::futex_wake_one(&state_);
  }

 private:
  enum State : std::uint32_t { free, held, awaited };
  std::atomic<std::uint32_t> state_{free};
};

}  // namespace cube::base
