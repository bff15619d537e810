// The queue of waiting fetches, first come first served, and the count of fetches that have not
// ended. Thread-safe.
#pragma once

#include <mutex>

#include "cache/base/mutex.h"
#include "prefetch/engine/io_engine.h"
#include "prefetch/threads/event_count.h"

namespace cube::prefetch {

class FetchQueue {
 public:
  // Returns false if the queue has been closed.
  bool push(Fetch& fetch) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return false;
    unended_.fetch_add(1, std::memory_order_relaxed);
    fetch.next = nullptr;
    *(first_ == nullptr ? &first_ : &last_->next) = &fetch;
    last_ = &fetch;
    ++size_;
    return true;
  }
  Fetch* pop() {
    const std::lock_guard lock(mutex_);
    Fetch* const fetch = first_;
    if (fetch != nullptr) {
      first_ = fetch->next;
      --size_;
    }
    return fetch;
  }
  // Ends every waiting fetch.
  void end_all(FetchClient& client, Ending ending, int error = 0);
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  unsigned size() {
    const std::lock_guard lock(mutex_);
    return size_;
  }

  // Notes that a fetch has ended and the engine no longer refers to it.
  void one_is_over() {
    // Pairs with the acquire in wait_for_all.
    if (unended_.fetch_sub(1, std::memory_order_release) == 1) over_.notify();
  }
  // Waits until all fetches are over, but no longer than `at_most_ns`.
  void wait_for_all(std::uint64_t at_most_ns = UINT64_MAX) {
    over_.wait_until([this] { return unended_.load(std::memory_order_acquire) == 0; }, at_most_ns);
  }

 private:
  base::Mutex mutex_;
  Fetch *first_ = nullptr, *last_ = nullptr;  // guarded by mutex_, like the next two members
  bool is_closed_ = false;
  unsigned size_ = 0;
  std::atomic<unsigned> unended_{0};
  EventCount over_;
};

}  // namespace cube::prefetch
