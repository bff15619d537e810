#include "latency.h"

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace cube::lagfs {
namespace {

constexpr Nanoseconds k_second = 1'000'000'000;

}  // namespace

Nanoseconds now_ns() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * k_second + ts.tv_nsec;
}

void sleep_until(Nanoseconds deadline) {
  if (deadline <= now_ns()) return;
  const timespec ts{deadline / k_second, deadline % k_second};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, nullptr) == EINTR) {
  }
}

Latency::Latency(const PerCost& microseconds, double bandwidth)
    : microseconds_(microseconds),
      ns_per_byte_(bandwidth > 0 ? static_cast<double>(k_second) / bandwidth : 0) {}

Nanoseconds Latency::reply_time(Op op, Nanoseconds start, std::uint64_t bytes) {
  const Nanoseconds latency = microseconds_[index_of(cost_of(op))] * 1000;
  const bool capped = op == Op::read && bytes > 0 && ns_per_byte_ > 0;
  return latency + (capped ? claim_bandwidth(start, bytes) : start);
}

Nanoseconds Latency::claim_bandwidth(Nanoseconds start, std::uint64_t bytes) {
  const auto duration = static_cast<Nanoseconds>(static_cast<double>(bytes) * ns_per_byte_);
  // Relaxed: the word itself is the only shared data.
  Nanoseconds free_at = wire_free_at_.load(std::memory_order_relaxed);
  Nanoseconds done_at = 0;
  do {
    done_at = std::max(free_at, start) + duration;
  } while (!wire_free_at_.compare_exchange_weak(free_at, done_at, std::memory_order_relaxed));
  return done_at;
}

}  // namespace cube::lagfs
