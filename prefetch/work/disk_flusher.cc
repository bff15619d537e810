#include "prefetch/work/disk_flusher.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/error_text.h"
#include "cache/base/process/signal_frame.h"
#include "cache/region/life/robust_lock.h"
#include "cache/tier/tier_writer.h"
#include "prefetch/threads/background_thread.h"
#include "prefetch/threads/event_count.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_between_passes_ns = 250 * base::k_ns_per_ms,
                        k_between_reaps_ns = 1000 * base::k_ns_per_ms,
                        k_between_lock_tries_ns = 500 * base::k_ns_per_ms,
                        k_after_error_ns = 10'000 * base::k_ns_per_ms;
constexpr std::uint64_t k_between_takeover_looks_ns = 100 * base::k_ns_per_ms;
constexpr std::size_t k_flusher_stack = 256 << 10;

}  // namespace

// Shared by the flusher and the thread that stops it; left behind if the flusher hangs in the disk.
struct DiskFlusher::State {
  explicit State(cache::FileCache& cache) : ahead(cache.ahead()), writer(cache.tier_writer()) {}

  cache::FetchAhead& ahead;
  cache::TierWriter writer;
  EventCount events, over;
  std::atomic<std::uint64_t> until_ns{0};  // 0: not asked to stop
  std::atomic<bool> is_over{false};

  bool stopping() const { return until_ns.load(std::memory_order_acquire) != 0; }
  bool has_time() const {
    const std::uint64_t until = until_ns.load(std::memory_order_acquire);
    return until == 0 || base::monotonic_ns() < until;
  }
  void run();
  void write();
};

void DiskFlusher::State::write() {
  std::uint64_t next_reap_ns = 0;
  std::optional<std::uint32_t> prepared;
  while (true) {
    const std::uint32_t seen = events.now();
    const std::uint32_t news = writer.news();
    const bool is_last = stopping();
    if (!is_last) ahead.keep_room_for_others();
    // At the beginning and after a segment was filled: clears the memory of the next one, so that
    // the program need not.
    if (!is_last && prepared != news) {
      prepared = news;
      ahead.prepare_room(1);
    }
    if (const std::uint64_t now = base::monotonic_ns(); !is_last && now >= next_reap_ns) {
      writer.free_claims();
      next_reap_ns = now + k_between_reaps_ns;
    }
    const auto left = writer.pass([this] { return has_time(); });
    if (is_last) {
      if (left && *left > 0)
        base::log(base::LogLevel::info,
                  "{} files, or pieces of large ones, had no time to be written to the disk",
                  *left);
      break;
    }
    if (stopping()) continue;
    // New records are no reason to ask again a disk that has just refused.
    if (left) {
      writer.wait_for_news(news, k_between_passes_ns, [this] { return stopping(); });
    } else {
      events.wait(seen, k_after_error_ns);
    }
  }
  writer.end();
  // The kernel would let the process end only after the thread has finished waiting for the disk.
  // So if the time is over, the thread does not begin to wait.
  if (has_time()) writer.seal();
}

void DiskFlusher::State::run() {
  lower_priority(5);
  // At least once: a job may be over before its flusher has run.
  for (bool is_last = false; !is_last;) {
    const std::uint32_t seen = events.now();
    // Once more after the request to stop: the process that wrote may have been killed meanwhile.
    is_last = stopping();
    if (const cache::RobustLock lock(writer.lock(), 0); lock) return write();
    // Does not wait for the lock, because such a wait could not be stopped.
    if (!is_last) events.wait(seen, k_between_lock_tries_ns);
  }
}

bool DiskFlusher::is_wanted(cache::FileCache& cache) {
  if (cache.tiers().is_empty()) return false;
  if (!cache.ahead().ring().has_disk_writer()) return true;
  // A killed writer counts as alive for a while longer, but its lock is free at once.
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

DiskFlusher* DiskFlusher::start(cache::FileCache& cache) {
  try {
    auto state = std::make_unique<State>(cache);
    auto flusher = std::unique_ptr<DiskFlusher>(new DiskFlusher(state.get()));
    const auto body = [](void* of) {
      auto& own = *static_cast<State*>(of);
      // Without a private fd table, the host could close the files that the thread writes.
      if (const auto table = take_private_fd_table(); !table) {
        base::log(base::LogLevel::info,
                  "nothing is written to the disk: close_range(CLOSE_RANGE_UNSHARE): {}",
                  base::text_of_error(table.error().value));
      } else {
        try {
          own.run();
        } catch (...) {
          base::log(base::LogLevel::warn, "nothing is written to the disk: no memory");
        }
      }
      own.is_over.store(true, std::memory_order_release);
      own.over.notify();
    };
    if (const int error = start_background_thread(body, state.get(), k_flusher_stack); error != 0) {
      base::log(base::LogLevel::info, "nothing is written to the disk: no thread: {}",
                base::text_of_error(error));
      return nullptr;
    }
    static_cast<void>(state.release());
    return flusher.release();
  } catch (...) {
    return nullptr;
  }
}

void DiskFlusher::ask_to_stop(std::uint64_t until_ns) {
  state_->until_ns.store(until_ns, std::memory_order_seq_cst);
  state_->writer.wake();
  state_->events.notify();
}

void DiskFlusher::wait(std::uint64_t until_ns) {
  for (auto seen = state_->over.now(); !state_->is_over.load(std::memory_order_acquire);
       seen = state_->over.now()) {
    const std::uint64_t now = base::monotonic_ns();
    if (now >= until_ns) return;
    state_->over.wait(seen, until_ns - now);
  }
}

}  // namespace cube::prefetch
