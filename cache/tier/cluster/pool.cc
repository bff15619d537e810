#include "cache/tier/cluster/pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "cache/base/hash.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_second_ns = 1'000'000'000, k_longest_rest_ns = 30 * k_second_ns;

}  // namespace

std::size_t home_of_key(std::span<const std::string> servers, std::uint64_t key_hash) {
  std::size_t home = 0;
  std::uint64_t best = 0;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const std::uint64_t score =
        XXH3_64bits_withSeed(servers[i].data(), servers[i].size(), key_hash);
    const bool is_better = score > best || (score == best && servers[i] < servers[home]);
    if (i != 0 && !is_better) continue;
    home = i;
    best = score;
  }
  return home;
}

bool CircuitBreaker::may_ask(std::uint64_t now_ns) {
  if (rests_ == 0) return true;
  if (!is_open(now_ns) || is_trial_) return false;
  is_trial_ = true;
  return true;
}

bool CircuitBreaker::note_answer(bool is_late, int most_late) {
  late_ = late_ << 1 | (is_late ? 1 : 0);
  if (!is_late) {
    rests_ = 0;
    is_trial_ = false;
  }
  return is_late && (is_trial_ || std::popcount(late_) >= most_late);
}

void CircuitBreaker::rest(std::uint64_t now_ns, std::uint64_t at_least_ns) {
  const std::uint64_t usual = std::min(k_second_ns << std::min(rests_, 5U), k_longest_rest_ns);
  rest_until_ns_.store(now_ns + std::max(usual, at_least_ns), std::memory_order_relaxed);
  ++rests_;
  late_ = 0;
  is_trial_ = false;
}

bool TokenBucket::take(std::atomic<std::uint64_t>& free_ns, std::uint64_t now_ns,
                       std::uint64_t bytes, std::uint64_t per_second) {
  if (per_second == 0) return false;
  constexpr std::uint64_t k_burst_ns = k_second_ns / 5;
  const auto ns_of = [&](std::uint64_t n) {
    return static_cast<std::uint64_t>(static_cast<double>(n) * 1e9 /
                                      static_cast<double>(per_second));
  };
  constexpr std::uint64_t k_large = 64 << 20, k_year_ns = 365 * 86400 * k_second_ns;
  const std::uint64_t cost = std::min(ns_of(bytes), k_year_ns);
  // Records push the word no later than this.
  const std::uint64_t latest =
      now_ns + k_burst_ns + std::min(std::max(ns_of(k_large), cost), k_year_ns);
  std::uint64_t free = free_ns.load(std::memory_order_relaxed);
  do {
    // A word that records cannot have produced is not waited for.
    const std::uint64_t begin = free > latest ? now_ns : std::max(free, now_ns);
    if (begin > now_ns + k_burst_ns) return false;
    if (free_ns.compare_exchange_weak(free, begin + cost, std::memory_order_relaxed)) return true;
  } while (true);
}

void Askers::note(unsigned awaited) {
  awaited_ = awaited;
  most_ = std::max(most_, awaited);
  if (++looks_ % k_looks != 0) return;
  most_before_ = std::exchange(most_, awaited);
}

void AheadWindow::hold() {
  std::unique_lock lock(mutex_);
  is_let_go_.wait_until(lock, [this] { return held_ < k_most_held; });
  ++held_;
}

void AheadWindow::let_go() {
  const std::lock_guard lock(mutex_);
  --held_;
  is_let_go_.notify_one();
}

void AheadWindow::enter() {
  std::unique_lock lock(mutex_);
  has_left_.wait_until(lock, [this] { return inside_ < width(); });
  ++inside_;
}

void AheadWindow::leave(std::uint64_t bytes) {
  constexpr std::uint64_t k_a_server = 1 << 20, k_fewest = 4, k_most = 24;
  const std::lock_guard lock(mutex_);
  --inside_;
  if (bytes != 0)
    average_ += (static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(average_)) / 16;
  const std::uint64_t fit = servers_ * k_a_server / std::max<std::uint64_t>(average_, 1);
  const auto width = static_cast<unsigned>(std::clamp(fit, k_fewest, k_most));
  if (width_.exchange(width, std::memory_order_relaxed) < width) {
    has_left_.notify();
  } else {
    has_left_.notify_one();
  }
}

void ColdPool::note(bool is_hit) {
  if (is_cold_.load(std::memory_order_relaxed)) {
    if (!is_hit) return;
    needed_.store(k_trial, std::memory_order_relaxed);
    is_cold_.store(false, std::memory_order_relaxed);
    return;
  }
  if (is_hit) hits_.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t needed = needed_.load(std::memory_order_relaxed);
  if (looks_.fetch_add(1, std::memory_order_relaxed) + 1 < needed) return;
  const std::uint32_t hits = hits_.exchange(0, std::memory_order_relaxed);
  looks_.store(0, std::memory_order_relaxed);
  needed_.store(k_looks, std::memory_order_relaxed);
  is_cold_.store(hits * k_looks < k_least_hits * needed, std::memory_order_relaxed);
}

}  // namespace cube::cache
