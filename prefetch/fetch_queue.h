// What waits to be fetched, first come first served, and how many have not ended. Thread safety: all of it.
#pragma once

#include <cstring>
#include <mutex>

#include "prefetch/event_count.h"
#include "prefetch/io_engine.h"

namespace cube::prefetch {

class FetchQueue {
 public:
  // False once it has been closed.
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
    return first_ != nullptr ? take_first() : nullptr;
  }
  // A copy of the next one's path, and which it is; null: none waits.
  template <typename Keep>
  const Fetch* look(Keep&& keep) {
    const std::lock_guard lock(mutex_);
    if (first_ != nullptr) keep(first_->path);
    return first_;
  }
  // If it is still the next, and still `path`: another may have come to the same place in memory.
  Fetch* pop_if(const Fetch* expected, const char* path) {
    const std::lock_guard lock(mutex_);
    if (first_ == nullptr || first_ != expected || std::strcmp(first_->path, path) != 0) return nullptr;
    return take_first();
  }
  // Ends what waits.
  void end_all(FetchClient& client, Ending ending, int error = 0);
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  unsigned size() {
    const std::lock_guard lock(mutex_);
    return size_;
  }

  // One has ended and the engine holds nothing of it any more.
  void one_is_over() {
    // Pairs with the acquire in wait_until_all_are_over.
    if (unended_.fetch_sub(1, std::memory_order_release) == 1) over_.notify();
  }
  // What waits and what is under way.
  unsigned unended() const { return unended_.load(std::memory_order_relaxed); }
  // False: it took longer.
  bool wait_until_all_are_over(std::uint64_t until_ns);

 private:
  Fetch* take_first() {
    Fetch* const fetch = first_;
    first_ = fetch->next;
    --size_;
    return fetch;
  }

  std::mutex mutex_;
  Fetch *first_ = nullptr, *last_ = nullptr;  // guarded by mutex_, as the next two
  bool is_closed_ = false;
  unsigned size_ = 0;
  std::atomic<unsigned> unended_{0};
  EventCount over_;
};

}  // namespace cube::prefetch
