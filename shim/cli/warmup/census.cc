#include "shim/cli/warmup/census.h"

#include <thread>

namespace cube::cli {

Census::Census(std::unique_ptr<NamedPaths> paths) : state_(std::make_shared<State>()) {
  state_->paths = std::move(paths);
  std::thread([state = state_] {
    prefetch::PlannedFile file;
    while (!state->is_unwanted.load(std::memory_order_relaxed) && state->paths->next(file))
      state->files.fetch_add(1, std::memory_order_relaxed);
    state->is_over.store(true, std::memory_order_release);
  }).detach();
}

}  // namespace cube::cli
