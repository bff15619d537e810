// A lane is a thread's part of the data that every hit writes. Because of lanes, threads that read
// at the same time do not write to the same cache lines. A thread takes a lane at its first use and
// keeps it. If there are more threads than lanes, several threads share a lane, and a signal
// handler uses the lane of its thread. So two writers can store to the same part at the same time.
// Nothing needs to be done when a thread ends. Thread-safe and async-signal-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cube::base {

inline constexpr std::uint32_t k_lanes = 64;
inline constexpr std::size_t k_cache_line = 64;

extern constinit thread_local std::uint32_t t_lane
    [[gnu::tls_model("initial-exec")]];  // plus one; 0: none yet
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
