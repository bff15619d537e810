// A thread that counts the files of a warm-up while the warm-up runs. The thread lists directories,
// and makes no request for a single file. If the origin hangs, the thread is abandoned, and ends
// when the origin answers. Thread safety: one thread calls the functions.
#pragma once

#include <atomic>
#include <memory>

#include "shim/cli/warmup/named_paths.h"

namespace cube::cli {

class Census {
 public:
  explicit Census(std::unique_ptr<NamedPaths> paths);
  ~Census() { state_->is_unwanted.store(true, std::memory_order_relaxed); }
  std::uint64_t files() const { return state_->files.load(std::memory_order_relaxed); }
  // Acquire. Pairs with the thread's release.
  bool is_over() const { return state_->is_over.load(std::memory_order_acquire); }

 private:
  struct State {
    std::unique_ptr<NamedPaths> paths;
    std::atomic<std::uint64_t> files{0};
    std::atomic<bool> is_over{false}, is_unwanted{false};
  };
  std::shared_ptr<State> state_;
};

}  // namespace cube::cli
