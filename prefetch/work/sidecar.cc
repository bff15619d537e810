#include "prefetch/work/sidecar.h"

#include <algorithm>
#include <mutex>
#include <new>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "prefetch/threads/thread_crew.h"
#include "prefetch/work/leader_work.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_look_for_lead_ns = 300'000'000;
// How long to wait for the last fetches. If the process was stopped and continued, its fetches end
// immediately; if it was merely slow, they take longer.
constexpr std::uint64_t k_longest_drain_ns = 5'000'000'000, k_drain_tick_ns = 10'000'000;
constexpr unsigned k_patience_of_lost_ms = 50;

}  // namespace

class Sidecar::Leader final : public ThreadCrew {
 public:
  Leader(cache::FileCache& cache, const base::Config& config, cache::Progress* progress)
      : ThreadCrew({.without = "nothing is prefetched",
                    .stack = 256 << 10,
                    .nice = 1,
                    .level = base::LogLevel::warn}),
        cache_(cache),
        config_(config),
        progress_(progress),
        claim_(cache.ahead().lead_claim()) {}
  static Leader* start(cache::FileCache& cache, const base::Config& config,
                       cache::Progress* progress) {
    return ThreadCrew::start<Leader>(1, cache, config, progress);
  }
  void stop(unsigned patience_ms);

 private:
  void work(unsigned) override;
  bool do_lead();
  void turn_by_turn(LeaderWork& own);
  void drain(LeaderWork& own);
  void show_progress();
  void show(LeaderWork* own) {
    const std::lock_guard lock(lead_mutex_);
    lead_ = own;
  }

  cache::FileCache& cache_;
  const base::Config& config_;
  cache::Progress* const progress_;
  cache::LeadClaim claim_;
  base::Mutex lead_mutex_;      // guards the rest
  LeaderWork* lead_ = nullptr;  // null until the lead has begun
};

void Sidecar::Leader::show_progress() {
  if (progress_ == nullptr) return;
  cache::ReportText line =
      progress_->look(cache_.region(), cache_.region().own_job(), base::coarse_monotonic_ns());
  if (line.size != 0) base::write_lines_to_terminal(line.bytes, line.size);
}

void Sidecar::Leader::turn_by_turn(LeaderWork& own) {
  while (!is_stopping() && claim_.beat()) {
    const std::uint32_t seen = news_.now();
    const std::uint64_t most_ns =
        cache_.ahead().keep_room_for_others() ? cache::k_look_at_room_ns : UINT64_MAX;
    const std::uint64_t pause_ns = own.turn();
    show_progress();
    if (!is_stopping()) own.wait(seen, std::min(pause_ns, most_ns));
  }
}

// After the lead was lost, still fetches the files that were reported to the clients as taken,
// because the clients will not announce these files to another leader.
void Sidecar::Leader::drain(LeaderWork& own) {
  own.lose();
  const std::uint64_t until = base::monotonic_ns() + k_longest_drain_ns;
  while (!is_stopping() && !own.is_drained() && base::monotonic_ns() < until)
    news_.wait(news_.now(), k_drain_tick_ns);
}

// Returns false if this process cannot prefetch or must stop.
bool Sidecar::Leader::do_lead() {
  LeaderWork own(cache_, config_, news_, claim_);
  if (!own.begin()) return false;
  // From now on, either a stopping thread finds the lead and stops the engine, or this thread sees
  // the stop. The lead is shown this early so that a stopping thread finds it even while this
  // thread waits for the origin. The stopping thread must remove the socket's name and end the
  // listening thread, which sends the heartbeat.
  show(&own);
  try {
    if (!is_stopping()) own.open();
    turn_by_turn(own);
    if (!is_stopping()) {
      base::log(base::LogLevel::debug,
                "prefetch: another process has taken the lead, because this one did not run");
      drain(own);
    }
  } catch (...) {
    // Ends every fetch before another process gets the lead.
    own.end(0);
    show(nullptr);
    throw;
  }
  own.end(is_stopping() ? 0 : k_patience_of_lost_ms);
  show(nullptr);
  return !is_stopping();
}

void Sidecar::Leader::work(unsigned) {
  while (!is_stopping()) {
    const std::uint32_t seen = news_.now();
    const bool looks_at_room = cache_.ahead().keep_room_for_others();
    show_progress();
    if (!cache_.ahead().is_wanted() || !claim_.look(base::monotonic_ns())) {
      // Does not wait for a mutex, because such a wait could not be stopped.
      if (!is_stopping())
        news_.wait(seen, looks_at_room ? cache::k_look_at_room_ns : k_look_for_lead_ns);
      continue;
    }
    // Gives up the lead: this process cannot prefetch, but another might be able to.
    const bool goes_on = !is_stopping() && do_lead();
    claim_.give_up();
    if (!goes_on) break;
  }
}

void Sidecar::Leader::stop(unsigned patience_ms) {
  begin_stop();
  cache_.ahead().ring().wake();
  // Stops the lead from this thread, because the leader's thread might hang while it reads a list
  // from the origin.
  {
    const std::lock_guard lock(lead_mutex_);
    if (lead_ != nullptr) lead_->stop(patience_ms);
  }
  if (wait_for_end(std::max(10U, patience_ms / 2) * base::k_ns_per_ms)) return;
  const std::lock_guard lock(lead_mutex_);
  if (lead_ != nullptr) lead_->remove_socket();
}

Sidecar* Sidecar::start(cache::FileCache& cache, const base::Config& config,
                        cache::Progress* progress) {
  Leader* const leader = config.prefetch ? Leader::start(cache, config, progress) : nullptr;
  DiskFlusher* const flusher = !cache.tiers().is_empty() ? DiskFlusher::start(cache) : nullptr;
  if (leader == nullptr && flusher == nullptr) return nullptr;
  auto* const sidecar = new (std::nothrow) Sidecar(leader, flusher);
  // Without the object, no caller could stop these threads, so they are stopped now.
  if (sidecar == nullptr) Sidecar(leader, flusher).stop();
  return sidecar;
}

void Sidecar::stop(unsigned patience_ms) {
  constexpr std::uint64_t k_for_the_disk_ns = 50'000'000;
  const std::uint64_t until = base::monotonic_ns() + k_for_the_disk_ns;
  if (flusher_ != nullptr) flusher_->ask_to_stop(until);
  if (leader_ != nullptr) leader_->stop(patience_ms);
  if (flusher_ != nullptr) flusher_->wait(until);
}

}  // namespace cube::prefetch
