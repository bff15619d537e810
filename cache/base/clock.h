// Clocks. Durations are in nanoseconds. Thread safety and async-signal safety: yes (vDSO, no system call).
#pragma once

#include <cstdint>
#include <ctime>

namespace cube::base {

inline std::uint64_t read_clock(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ULL + static_cast<std::uint64_t>(t.tv_nsec);
}
inline std::uint64_t monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }
inline std::uint64_t coarse_monotonic_ns() { return read_clock(CLOCK_MONOTONIC_COARSE); }
inline std::uint64_t wall_ns() { return read_clock(CLOCK_REALTIME); }

}  // namespace cube::base
