// Several threads that share one task. The last thread to finish marks the task as over. Thread
// safety: one thread calls work_together().
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "shim/cli/interrupt.h"
#include "shim/cli/warmup/progress.h"

namespace cube::cli {

// `mutex` guards `is_over` and the counts that tally() returns.
struct SharedWork {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
};

// Calls work() in several threads, and returns after all calls have returned. An interrupt sets
// `is_over`.
template <typename Work, typename Counted>
void work_together(SharedWork& shared, Progress& progress, Work&& work, Counted&& tally) {
  constexpr unsigned k_threads = 16;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < k_threads; ++i) threads.emplace_back([&] { work(); });
  {
    std::unique_lock lock(shared.mutex);
    while (!shared.is_over) {
      shared.changed.wait_for(lock, std::chrono::milliseconds(100));
      if (interrupted_by() != 0) shared.is_over = true;
      const Tally now = tally();
      lock.unlock();
      progress.show(now);
      lock.lock();
    }
  }
  shared.changed.notify_all();
  for (auto& thread : threads) thread.join();
}

}  // namespace cube::cli
