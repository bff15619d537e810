#include "shim/background.h"

#include <bit>

#include "cache/base/log.h"
#include "cache/base/signal_frame.h"
#include "prefetch/sidecar.h"
#include "prefetch/threads/background_thread.h"
#include "shim/attachment.h"
#include "shim/calls/c_result.h"
#include "shim/materialize.h"

namespace cube::shim::background {

constinit std::atomic<State> g_state{State::none};

namespace {

constinit prefetch::Sidecar* g_sidecar = nullptr;
constinit prefetch::Sidecar* g_former_sidecar = nullptr;

void keep_sidecar_reachable() {
  g_sidecar->former = g_former_sidecar;
  g_former_sidecar = std::exchange(g_sidecar, nullptr);
}

}  // namespace

bool start() {
  const BlockSignals block;
  auto none = State::none;
  if (!g_state.compare_exchange_strong(none, State::busy, std::memory_order_acq_rel)) return none != State::over;
  const KeepErrno keep;
  cache::FileCache* const cache = attachment::cache();
  prefetch::Sidecar* const sidecar = cache != nullptr ? prefetch::Sidecar::start(*cache, process::config()) : nullptr;
  g_sidecar = sidecar;
  // An attachment that failed is not tried again.
  g_state.store(sidecar != nullptr ? State::running : State::over, std::memory_order_release);
  return sidecar != nullptr;
}

namespace {

// Ends it, if there is one, and lets it be in `next` state. Whether there was one.
bool end(State next) {
  auto running = State::running;
  if (!g_state.compare_exchange_strong(running, next, std::memory_order_acq_rel)) {
    auto none = State::none;
    g_state.compare_exchange_strong(none, next, std::memory_order_acq_rel);
    return false;
  }
  const KeepErrno keep;
  g_sidecar->stop();
  keep_sidecar_reachable();
  return true;
}

}  // namespace

void stop() { end(State::over); }

bool pause() {
  constexpr unsigned k_patience_ms = 500;
  if (!end(State::busy)) return false;
  if (!prefetch::wait_for_background_threads(k_patience_ms)) base::log(base::LogLevel::info, "a prefetch hangs at the origin");
  return true;
}

void resume() {
  auto busy = State::busy;
  g_state.compare_exchange_strong(busy, State::none, std::memory_order_acq_rel);
}

void offer_slow(cache::FileCache& cache) {
  const bool may_prefetch = process::config().prefetch && (cache.ahead().is_wanted() || process::has_list());
  // One process of the node writes to the disk. The others need no thread for it, until that one is gone.
  const bool may_write = !cache.tiers().is_empty() && !cache.ahead().ring().has_disk_writer();
  if (!may_prefetch && !may_write) return;
  // A thread is not made where a signal handler may have interrupted malloc. A later open tries again, and not each one, for
  // the question is dear.
  static constinit std::atomic<std::uint32_t> tries{0};
  const std::uint32_t n = tries.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool is_due = std::has_single_bit(n) || n % 1024 == 0;
  if (is_due && !base::may_be_in_handler()) start();
}

void end_for_good() {
  pause();
  g_state.store(State::over, std::memory_order_release);
}

void become_child() {
  if (g_sidecar != nullptr) keep_sidecar_reachable();
  prefetch::forget_background_threads();
  if (g_state.load(std::memory_order_relaxed) != State::over) g_state.store(State::none, std::memory_order_relaxed);
}

}  // namespace cube::shim::background
