// A pool of k_count objects that are never freed. The first use reserves pages of zeros for all
// objects. prepare() makes the pages usable in steps, from the first page on. A program that uses
// no object reserves no pages, because `ulimit -v` and mlockall count all reserved pages. `ulimit
// -d` counts only usable pages. Thread-safe and async-signal-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"

namespace cube::base {

template <typename T, std::uint32_t k_count>
class LazyPool {
 public:
  static constexpr std::size_t k_bytes = sizeof(T) * k_count;

  // False: there is no memory.
  bool reserve() {
    if (first_.load(std::memory_order_acquire) != nullptr) return true;
    const long at = sys::mmap(own_place(k_bytes), k_bytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sys::failed(at)) return false;
    T* none = nullptr;
    // Release: a thread that loads the pointer finds the pages mapped. The exchange fails if
    // another thread has already reserved pages.
    if (!first_.compare_exchange_strong(none, reinterpret_cast<T*>(at), std::memory_order_acq_rel))
      sys::munmap(reinterpret_cast<void*>(at), k_bytes);
    return true;
  }
  // Makes the first `n` objects usable. False: there is no memory.
  bool prepare(std::uint32_t n) {
    constexpr std::size_t k_step = 256 << 10;
    const std::size_t wanted = std::min((n * sizeof(T) + k_step - 1) / k_step * k_step, k_bytes);
    std::size_t usable = usable_.load(std::memory_order_acquire);
    if (usable >= wanted) return true;
    if (!reserve() || sys::failed(sys::raw(SYS_mprotect, sys::arg(at(0)), static_cast<long>(wanted),
                                           PROT_READ | PROT_WRITE)))
      return false;
    // Release: a thread that loads the size finds the pages writable.
    while (usable < wanted &&
           !usable_.compare_exchange_weak(usable, wanted, std::memory_order_acq_rel)) {
    }
    return true;
  }
  T* at(std::uint32_t i) const { return first_.load(std::memory_order_relaxed) + i; }
  std::uint32_t index_of(const T* object) const {
    return static_cast<std::uint32_t>(object - first_.load(std::memory_order_relaxed));
  }
  // The reserved memory. Empty before reserve().
  std::span<const std::byte> memory() const {
    const T* const first = first_.load(std::memory_order_acquire);
    return {reinterpret_cast<const std::byte*>(first), first != nullptr ? k_bytes : 0};
  }

 private:
  std::atomic<T*> first_{nullptr};
  std::atomic<std::size_t> usable_{0};
};

}  // namespace cube::base
