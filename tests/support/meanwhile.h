// Threads that repeat an action while a test does other work. Each thread has its own random
// numbers.
#pragma once

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace cube::tests {

// When this object is destroyed, the threads end after their current round.
class Meanwhile {
 public:
  template <typename Body>
  Meanwhile(unsigned threads, Body body) {
    for (unsigned id = 0; id < threads; ++id) {
      threads_.emplace_back([this, id, body] {
        std::mt19937 random(id);
        while (!stop_.load()) body(random);
      });
    }
  }
  ~Meanwhile() {
    stop_ = true;
    for (auto& thread : threads_) thread.join();
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace cube::tests
