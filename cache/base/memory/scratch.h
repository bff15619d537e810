// A buffer for the bytes that a read returns. The buffer is a mapping, not heap memory, because a
// signal handler may open files. The process keeps one unused buffer for the next object. Thread
// safety: an object belongs to one thread. A buffer that a jump leaves behind is freed later
// (held.h).
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cache/base/memory/held.h"
#include "cache/base/memory/own_place.h"
#include "cache/base/sys.h"

namespace cube::base {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { give_back(); }

  // Returns a buffer of at least `bytes` bytes, whose previous content may be lost. Null: there is
  // no memory.
  std::byte* reserve(std::size_t bytes) {
    if (data_ != nullptr && bytes <= bytes_) return data_;
    give_back();
    Held::give_back_left(this);
    bytes = bytes < k_kept ? k_kept : bytes;
    data_ = take(bytes);
    if (data_ == nullptr) return nullptr;
    bytes_ = bytes;
    is_noted_ = Held::note(this, give_back_piece, reinterpret_cast<std::uintptr_t>(data_), bytes_);
    return data_;
  }

 private:
  static std::byte* take(std::size_t bytes) {
    if (bytes == k_kept) {
      std::byte* const kept = g_kept.exchange(nullptr, std::memory_order_acquire);
      if (kept != nullptr) return kept;
    }
    const long at = sys::mmap(own_place(bytes), bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return sys::failed(at) ? nullptr : reinterpret_cast<std::byte*>(at);
  }
  void give_back() {
    const auto piece = reinterpret_cast<std::uintptr_t>(std::exchange(data_, nullptr));
    if (piece == 0 || (is_noted_ && !Held::let_go(this, piece))) return;
    give_back_piece(piece, bytes_);
  }
  static void give_back_piece(std::uintptr_t piece, std::size_t bytes) {
    auto* const data = reinterpret_cast<std::byte*>(piece);
    std::byte* none = nullptr;
    // Pairs with the acquire in take(): the next owner may write to the piece.
    if (bytes == k_kept && g_kept.compare_exchange_strong(none, data, std::memory_order_release))
      return;
    sys::munmap(data, bytes);
  }

  static constexpr std::size_t k_kept = 1 << 20;
  static constinit inline std::atomic<std::byte*> g_kept{nullptr};
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool is_noted_ = false;
};

}  // namespace cube::base
