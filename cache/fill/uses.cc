#include "cache/fill/uses.h"

#include <ctime>

#include "cache/base/clock.h"
#include "cache/base/sys.h"

namespace cube::cache {
namespace {

// Equals the longest wait for a flight.
constexpr std::uint64_t k_longest_use_ns = 1'000'000'000;

}  // namespace

void Uses::end() {
  if (count_.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
      waiters_.load(std::memory_order_seq_cst) != 0)
    base::sys::futex_wake_all(&count_);
}

void Uses::wait_for_none() {
  const std::uint64_t until = base::monotonic_ns() + k_longest_use_ns;
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  while (const std::uint32_t count = count_.load(std::memory_order_seq_cst)) {
    const std::uint64_t now = base::monotonic_ns();
    if (now >= until) break;
    base::sys::futex_wait(&count_, count, until - now);
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cube::cache
