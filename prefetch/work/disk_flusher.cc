#include "prefetch/work/disk_flusher.h"

#include <algorithm>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/process/signal_frame.h"
#include "cache/region/life/robust_lock.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_between_passes_ns = 250 * base::k_ns_per_ms,
                        k_between_reaps_ns = 1000 * base::k_ns_per_ms,
                        k_between_lock_tries_ns = 500 * base::k_ns_per_ms,
                        k_after_error_ns = 10'000 * base::k_ns_per_ms;
constexpr std::uint64_t k_between_takeover_looks_ns = 100 * base::k_ns_per_ms;

}  // namespace

DiskFlusher::DiskFlusher(cache::FileCache& cache)
    : ThreadCrew({.without = "nothing is written to the disk", .stack = 256 << 10, .nice = 5}),
      ahead_(cache.ahead()),
      writer_(cache.tier_writer()) {}

DiskFlusher* DiskFlusher::start(cache::FileCache& cache) {
  return ThreadCrew::start<DiskFlusher>(1, cache);
}

bool DiskFlusher::has_time() const {
  return base::monotonic_ns() < until_ns_.load(std::memory_order_acquire);
}

void DiskFlusher::ask_to_stop(std::uint64_t until_ns) {
  until_ns_.store(until_ns, std::memory_order_seq_cst);
  begin_stop();
  writer_.wake();
}

void DiskFlusher::wait(std::uint64_t until_ns) {
  const std::uint64_t now = base::monotonic_ns();
  wait_for_end(until_ns - std::min(now, until_ns));
}

void DiskFlusher::write() {
  std::uint64_t next_reap_ns = 0;
  std::optional<std::uint32_t> prepared;
  while (true) {
    const std::uint32_t seen = news_.now();
    const std::uint32_t news = writer_.news();
    const bool is_last = is_stopping();
    if (!is_last) ahead_.keep_room_for_others();
    // At the beginning, and whenever a segment was filled, this thread clears the memory of the
    // next segment, so that the program need not.
    if (!is_last && prepared != news) {
      prepared = news;
      ahead_.prepare_room(1);
    }
    if (const std::uint64_t now = base::monotonic_ns(); !is_last && now >= next_reap_ns) {
      writer_.free_claims();
      next_reap_ns = now + k_between_reaps_ns;
    }
    const auto left = writer_.pass([this] { return has_time(); });
    if (is_last) {
      if (left && *left > 0)
        base::log(base::LogLevel::info,
                  "{} files, or pieces of large ones, could not be written to the disk in time",
                  *left);
      break;
    }
    if (is_stopping()) continue;
    // If the disk has just refused records, new records do not cause another try.
    if (left) {
      writer_.wait_for_news(news, k_between_passes_ns, [this] { return is_stopping(); });
    } else {
      news_.wait(seen, k_after_error_ns);
    }
  }
  writer_.end();
  // seal() may wait for the disk, and a process cannot end while one of its threads waits for the
  // disk. So seal() is skipped if no time is left.
  if (has_time()) writer_.seal();
}

void DiskFlusher::work(unsigned) {
  // Makes at least one pass, because a job can end before its flusher has begun.
  for (bool is_last = false; !is_last;) {
    const std::uint32_t seen = news_.now();
    // Makes one more try after the request to stop, because the writing process might have been
    // killed in the meantime.
    is_last = is_stopping();
    if (const cache::RobustLock lock(writer_.lock(), 0); lock) return write();
    // Does not wait for the lock, because such a wait could not be stopped.
    if (!is_last) news_.wait(seen, k_between_lock_tries_ns);
  }
}

bool DiskFlusher::is_wanted(cache::FileCache& cache) {
  if (cache.tiers().is_empty()) return false;
  // Tries the lock, because the writer's heartbeats prove nothing: a killed writer counts as alive
  // for a while, and a slow disk keeps a living writer from reporting.
  static constinit std::atomic<std::uint64_t> next_look_ns{0};
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = next_look_ns.load(std::memory_order_relaxed);
  if (now < due || base::may_be_in_handler()) return false;
  if (!next_look_ns.compare_exchange_strong(due, now + k_between_takeover_looks_ns,
                                            std::memory_order_relaxed))
    return false;
  const cache::RobustLock lock(&cache.region().header().disk_writer, 0);
  return static_cast<bool>(lock);
}

}  // namespace cube::prefetch
