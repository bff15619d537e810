// A gate that keeps an engine's thread from calling the engine's client after the engine was
// stopped, however late the thread returns from the kernel. Each thread has one gate. Thread
// safety: the owner calls enter() and leave(); any other thread may call close().
#pragma once

#include <atomic>

#include "prefetch/threads/event_count.h"

namespace cube::prefetch {

class CallbackGate {
 public:
  // Returns false if the gate is closed, which is permanent.
  bool enter() {
    int open = k_open;
    return state_.compare_exchange_strong(open, k_passing, std::memory_order_acquire);
  }
  void leave() {
    // Pairs with the acquire in close(): the closing thread sees what the owner has written.
    int passing = k_passing;
    if (!state_.compare_exchange_strong(passing, k_open, std::memory_order_release)) {
      state_.store(k_closed, std::memory_order_release);
      left_.notify();
    }
  }
  bool is_closed() const { return state_.load(std::memory_order_acquire) == k_closed; }
  // Returns when the owner is outside the gate and will not enter it again.
  void close() {
    for (auto seen = left_.now();; seen = left_.now()) {
      int state = k_open;
      if (state_.compare_exchange_strong(state, k_closed, std::memory_order_acquire) ||
          state == k_closed)
        return;
      // The owner is inside: its leave() will wake us.
      if (state == k_passing &&
          !state_.compare_exchange_strong(state, k_closing, std::memory_order_acquire))
        continue;
      left_.wait(seen);
    }
  }

 private:
  static constexpr int k_open = 0, k_passing = 1, k_closing = 2, k_closed = 3;
  std::atomic<int> state_{k_open};
  EventCount left_;
};

}  // namespace cube::prefetch
