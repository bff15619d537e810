#include "cache/tier/cluster/helper_thread.h"

#include "cache/base/sys.h"

namespace cube::cache {

namespace sys = base::sys;

constinit std::atomic<StartHelperThread> g_start_helper_thread{nullptr};

void HelperDesk::let_go() {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

bool HelperDesk::start() {
  const StartHelperThread start_thread = g_start_helper_thread.load(std::memory_order_acquire);
  if (start_thread != nullptr && start_thread(run, this)) return true;
  delete this;
  return false;
}

void HelperDesk::run(void* of) {
  auto* const desk = static_cast<HelperDesk*>(of);
  desk->begin();
  while (true) {
    std::uint32_t state = desk->state_.load(std::memory_order_acquire);
    if (state == over) break;
    if (state != asked) {
      sys::futex_wait(&desk->state_, state);
      continue;
    }
    desk->work();
    if (desk->state_.compare_exchange_strong(state, done, std::memory_order_acq_rel))
      desk->client_.wake();
  }
  desk->let_go();
}

void HelperDesk::ask() {
  state_.store(asked, std::memory_order_release);
  sys::futex_wake_all(&state_);
}

void HelperDesk::end() {
  state_.store(over, std::memory_order_release);
  sys::futex_wake_all(&state_);
  let_go();
}

}  // namespace cube::cache
