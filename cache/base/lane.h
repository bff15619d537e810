// A lane is one thread's part of the data that every hit writes. Lanes keep threads that read at
// the same time from writing to the same cache lines. A thread chooses a lane when it first needs
// one, and keeps it. A lane can still have two writers at the same time. If there are more threads
// than lanes, threads share lanes. And a signal handler uses the lane of the thread that it
// interrupts. A thread that ends need not release its lane. Thread-safe and async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cube::base {

inline constexpr std::uint32_t k_lanes = 64;
inline constexpr std::size_t k_cache_line = 64;

extern constinit thread_local std::uint32_t t_lane
    [[gnu::tls_model("initial-exec")]];  // the lane plus one; 0: not chosen yet
std::uint32_t choose_lane();
// The lane of this thread, less than k_lanes.
inline std::uint32_t own_lane() {
  const std::uint32_t lane = t_lane;
  return lane != 0 ? lane - 1 : choose_lane();
}
// All lanes that have ever been used are below this number.
std::uint32_t lanes_reached();

// A value for one lane, on a cache line of its own.
template <typename T>
struct alignas(k_cache_line) Lane {
  T of{};
};

}  // namespace cube::base
