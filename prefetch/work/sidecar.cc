#include "prefetch/work/sidecar.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/mutex.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/starter_traits.h"
#include "prefetch/work/lead.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_look_for_lead_ns = 300'000'000;
// If a process continues after a stop, the kernel ends its fetches at once. A process that was only
// slow needs longer.
constexpr std::uint64_t k_longest_drain_ns = 5'000'000'000, k_drain_tick_ns = 10'000'000;
constexpr unsigned k_patience_of_lost_ms = 50;
constexpr std::size_t k_sidecar_stack = 256 << 10;

}  // namespace

// Shared by the sidecar and the thread that stops it; left behind if the sidecar hangs.
struct Sidecar::State {
  State(cache::FileCache& of, const base::Config& with)
      : cache(of), config(with), claim(of.ahead().lead_claim()) {}

  cache::FileCache& cache;
  const base::Config& config;
  EventCount events, over;
  std::atomic<bool> is_stopping{false}, is_over{false};
  cache::LeadClaim claim;
  base::Mutex lead_mutex;  // guards the rest
  Lead* lead = nullptr;    // null until it has begun

  bool stopping() const { return is_stopping.load(std::memory_order_acquire); }
  void run();
  bool do_lead();
  void turn_by_turn(Lead& own);
  void drain(Lead& own);
  void show(Lead* own) {
    const std::lock_guard lock(lead_mutex);
    lead = own;
  }
};

void Sidecar::State::turn_by_turn(Lead& own) {
  while (!stopping() && claim.beat()) {
    const std::uint32_t seen = events.now();
    const std::uint64_t most_ns =
        cache.ahead().keep_room_for_others() ? cache::k_look_at_room_ns : UINT64_MAX;
    const std::uint64_t pause_ns = own.turn();
    if (!stopping()) own.wait(seen, std::min(pause_ns, most_ns));
  }
}

// Still fetches the files that its clients were told are taken, because nobody else is told of
// these.
void Sidecar::State::drain(Lead& own) {
  own.lose();
  const std::uint64_t until = base::monotonic_ns() + k_longest_drain_ns;
  while (!stopping() && !own.is_drained() && base::monotonic_ns() < until)
    events.wait(events.now(), k_drain_tick_ns);
}

// False: this process cannot prefetch, or must stop.
bool Sidecar::State::do_lead() {
  Lead own(cache, config, events, claim);
  if (!own.begin()) return false;
  // From now on a stopping thread finds the lead and stops the engine, or this thread sees the
  // stop. Not later: if this thread waits for the origin, the stopping thread must find the lead to
  // remove the socket's name and to end the thread that beats there.
  show(&own);
  try {
    if (!stopping()) own.open();
    turn_by_turn(own);
    if (!stopping()) {
      base::log(base::LogLevel::debug,
                "prefetch: another process has taken the lead, for this one did not run");
      drain(own);
    }
  } catch (...) {
    // Ends every fetch before another process gets the lead.
    own.end(0);
    show(nullptr);
    throw;
  }
  own.end(stopping() ? 0 : k_patience_of_lost_ms);
  show(nullptr);
  return !stopping();
}

void Sidecar::State::run() {
  lower_priority(1);
  while (!stopping()) {
    const std::uint32_t seen = events.now();
    const bool looks_at_room = cache.ahead().keep_room_for_others();
    if (!cache.ahead().is_wanted() || !claim.look(base::monotonic_ns())) {
      // Does not wait for a mutex, because such a wait could not be stopped.
      if (!stopping())
        events.wait(seen, looks_at_room ? cache::k_look_at_room_ns : k_look_for_lead_ns);
      continue;
    }
    // If this process cannot prefetch, another may have more luck.
    const bool goes_on = !stopping() && do_lead();
    claim.give_up();
    if (!goes_on) break;
  }
}

Sidecar* Sidecar::start(cache::FileCache& cache, const base::Config& config) {
  State* const state = config.prefetch ? start_prefetching(cache, config) : nullptr;
  DiskFlusher* const flusher = !cache.tiers().is_empty() ? DiskFlusher::start(cache) : nullptr;
  if (state == nullptr && flusher == nullptr) return nullptr;
  auto* const sidecar = new (std::nothrow) Sidecar(state, flusher);
  // A thread that nobody could stop must not go on.
  if (sidecar == nullptr) Sidecar(state, flusher).stop();
  return sidecar;
}

Sidecar::State* Sidecar::start_prefetching(cache::FileCache& cache, const base::Config& config) {
  try {
    auto state = std::make_unique<State>(cache, config);
    const auto body = [](void* of) {
      auto& own = *static_cast<State*>(of);
      // Without a private fd table, the host could close what the thread reads.
      const auto table = take_private_fd_table();
      if (!table) {
        // Forked children meet the same error and need not warn again.
        static constinit std::atomic<bool> is_told{false};
        base::log(is_told.exchange(true) ? base::LogLevel::info : base::LogLevel::warn,
                  "nothing is prefetched: close_range(CLOSE_RANGE_UNSHARE): {}",
                  base::text_of_error(table.error().value));
      } else {
        try {
          own.run();
        } catch (...) {
          base::log(base::LogLevel::warn, "nothing is prefetched: no memory");
        }
      }
      own.is_over.store(true, std::memory_order_release);
      own.over.notify();
    };
    if (const int error = start_background_thread(body, state.get(), k_sidecar_stack); error != 0) {
      // EINVAL: after unshare(CLONE_NEWPID) a process may have children, but no threads.
      base::log(error == EINVAL ? base::LogLevel::info : base::LogLevel::warn,
                "nothing is prefetched: no thread: {}", base::text_of_error(error));
      return nullptr;
    }
    return state.release();
  } catch (...) {
    return nullptr;
  }
}

void Sidecar::stop(unsigned patience_ms) {
  constexpr std::uint64_t k_for_the_disk_ns = 50'000'000;
  const std::uint64_t until = base::monotonic_ns() + k_for_the_disk_ns;
  if (flusher_ != nullptr) flusher_->ask_to_stop(until);
  if (state_ != nullptr) stop_prefetching(patience_ms);
  if (flusher_ != nullptr) flusher_->wait(until);
}

void Sidecar::stop_prefetching(unsigned patience_ms) {
  State& state = *state_;
  state.is_stopping.store(true, std::memory_order_seq_cst);
  state.events.notify();
  state.cache.ahead().ring().wake();
  // Done here, because the thread itself may hang in a list on the origin.
  {
    const std::lock_guard lock(state.lead_mutex);
    if (state.lead != nullptr) state.lead->stop(patience_ms);
  }
  const auto is_over = [&] { return state.is_over.load(std::memory_order_acquire); };
  const bool hangs =
      !state.over.wait_until(is_over, std::max(10U, patience_ms / 2) * base::k_ns_per_ms);
  if (!hangs) return;
  const std::lock_guard lock(state.lead_mutex);
  if (state.lead != nullptr) state.lead->remove_socket();
}

}  // namespace cube::prefetch
