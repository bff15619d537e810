// Room for bytes that are read. It comes from the kernel and not from the heap, because a signal handler may open files. One
// piece is kept for the next user.
// Thread safety: an object belongs to one thread.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "cache/base/sys.h"

namespace cube::base {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { give_back(); }

  // The bytes that were there before are lost. Null: there is no memory.
  std::byte* reserve(std::size_t bytes) {
    if (data_ != nullptr && bytes <= bytes_) return data_;
    give_back();
    if (bytes <= k_kept) {
      bytes = k_kept;
      data_ = g_kept.exchange(nullptr, std::memory_order_acquire);
      bytes_ = bytes;
      if (data_ != nullptr) return data_;
    }
    const long at = sys::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (sys::failed(at)) return nullptr;
    data_ = reinterpret_cast<std::byte*>(at);
    bytes_ = bytes;
    return data_;
  }

 private:
  void give_back() {
    std::byte* const data = std::exchange(data_, nullptr);
    if (data == nullptr) return;
    std::byte* none = nullptr;
    // Pairs with the acquire in reserve: whoever takes it may write to it.
    if (bytes_ == k_kept && g_kept.compare_exchange_strong(none, data, std::memory_order_release)) return;
    sys::munmap(data, bytes_);
  }

  static constexpr std::size_t k_kept = 1 << 20;
  static constinit inline std::atomic<std::byte*> g_kept{nullptr};
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cube::base
