// Room for objects that are never freed: zero pages, mapped as a whole at the first use. A program
// that uses none does not have the pool in its address space, which `ulimit -v`, `ulimit -d` and
// mlockall count. Thread safety: all of it; async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/base/sys.h"

namespace cube::base {

template <typename T, std::uint32_t k_count>
class LazyPool {
 public:
  static constexpr std::size_t k_bytes = sizeof(T) * k_count;

  // False: there is no memory. No other function may be called before prepare() has returned true,
  // except memory().
  bool prepare() {
    if (first_.load(std::memory_order_acquire) != nullptr) return true;
    const long at =
        sys::mmap(nullptr, k_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sys::failed(at)) return false;
    T* none = nullptr;
    // Release: a thread that loads the pointer finds the pages mapped. Another thread may have been
    // quicker.
    if (!first_.compare_exchange_strong(none, reinterpret_cast<T*>(at), std::memory_order_acq_rel))
      sys::munmap(reinterpret_cast<void*>(at), k_bytes);
    return true;
  }
  T* at(std::uint32_t i) const { return first_.load(std::memory_order_relaxed) + i; }
  std::uint32_t index_of(const T* object) const {
    return static_cast<std::uint32_t>(object - first_.load(std::memory_order_relaxed));
  }
  // Empty before prepare().
  std::span<const std::byte> memory() const {
    const T* const first = first_.load(std::memory_order_acquire);
    return {reinterpret_cast<const std::byte*>(first), first != nullptr ? k_bytes : 0};
  }

 private:
  std::atomic<T*> first_{nullptr};
};

}  // namespace cube::base
