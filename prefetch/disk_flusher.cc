#include "prefetch/disk_flusher.h"

#include <atomic>
#include <cstring>
#include <memory>

#include "cache/base/clock.h"
#include "cache/disk_flush.h"
#include "cache/ram/robust_lock.h"
#include "prefetch/background_thread.h"
#include "prefetch/event_count.h"

namespace cube::prefetch {
namespace {

constexpr std::uint64_t k_ms = 1'000'000;
constexpr std::uint64_t k_between_passes_ns = 250 * k_ms, k_look_for_turn_ns = 500 * k_ms, k_after_error_ns = 10'000 * k_ms;
constexpr std::size_t k_stack = 256 << 10;

}  // namespace

// Shared by the thread and who stops it, and left behind where the thread hangs in the disk.
struct DiskFlusher::State {
  explicit State(cache::FileCache& of) : cache(of) {}

  cache::FileCache& cache;
  EventCount events, over;
  std::atomic<std::uint64_t> until_ns{0};  // 0: it is not to stop
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
  cache::DiskFlush flush(cache);
  while (true) {
    const std::uint32_t seen = events.now();
    const bool is_last = stopping();
    const auto left = flush.pass([this] { return has_time(); });
    if (is_last) {
      if (left && *left > 0) base::log(base::LogLevel::info, "{} files had no time to be written to the disk", *left);
      break;
    }
    if (!stopping()) events.wait(seen, left ? k_between_passes_ns : k_after_error_ns);
  }
  // Without its footer a file is recovered by the next job; with it, that costs nothing. The kernel would let the process end
  // only when the thread has done waiting for the disk, so it does not begin to.
  if (has_time()) cache.disk()->store().seal(/*durable=*/false);
}

void DiskFlusher::State::run() {
  lower_priority(5);
  while (!stopping()) {
    const std::uint32_t seen = events.now();
    if (const cache::RobustLock lock(&cache.region().header().disk_writer, 0); lock) return write();
    // Not by waiting for the lock, for which one could not be stopped.
    if (!stopping()) events.wait(seen, k_look_for_turn_ns);
  }
}

DiskFlusher* DiskFlusher::start(cache::FileCache& cache) {
  try {
    auto state = std::make_unique<State>(cache);
    auto flusher = std::unique_ptr<DiskFlusher>(new DiskFlusher(state.get()));
    const auto body = [](void* of) {
      auto& own = *static_cast<State*>(of);
      // Without a table of its own, the host could close what it writes to.
      if (const auto table = take_private_fd_table(); !table) {
        base::log(base::LogLevel::info, "nothing is written to the disk: close_range(CLOSE_RANGE_UNSHARE): {}",
                  strerrordesc_np(table.error().value));
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
    if (const int error = start_background_thread(body, state.get(), k_stack); error != 0) {
      base::log(base::LogLevel::info, "nothing is written to the disk: no thread: {}", strerrordesc_np(error));
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
  state_->events.notify();
}

void DiskFlusher::wait(std::uint64_t until_ns) {
  for (auto seen = state_->over.now(); !state_->is_over.load(std::memory_order_acquire); seen = state_->over.now()) {
    const std::uint64_t now = base::monotonic_ns();
    if (now >= until_ns) return;
    state_->over.wait(seen, until_ns - now);
  }
}

}  // namespace cube::prefetch
