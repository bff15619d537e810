// Reads clocks, in nanoseconds. Always calls libc's own clock_gettime, even if a preloaded library
// (libfaketime) replaces that function for the program. The reason is that the times are compared
// with times of the kernel and of other processes. In a time namespace, the kernel shifts the
// clocks that count from boot. The functions that return nanoseconds undo this shift, because
// processes outside the namespace read their results. read_clock keeps the shift, because its
// callers pass deadlines to the kernel. Thread-safe and async-signal-safe (vDSO, no system call).
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace cube::base {

inline constexpr std::uint64_t k_ns_per_ms = 1'000'000, k_ns_per_s = 1000 * k_ns_per_ms;

// libc's clock_gettime. Until a constructor has found libc's function, the pointer leads to a
// function that makes the system call.
extern constinit std::atomic<int (*)(clockid_t, timespec*)> g_clock_gettime;

// How far the process's time namespace shifts each clock. The shifts are modulo 2^64, because a
// shift can be negative. The shifts are set before the process has a second thread. All shifts are
// zero if /proc is missing.
struct ClockShifts {
  std::uint64_t monotonic_ns = 0, boot_ns = 0;
};
extern constinit ClockShifts g_clock_shifts;
// The first call, at the start of the process, sets g_clock_shifts. Later calls do nothing.
void find_clock_shifts();
// Parses the text of /proc/self/timens_offsets. A line that cannot be parsed shifts nothing.
ClockShifts parse_clock_shifts(std::string_view text);

inline timespec read_clock(clockid_t id) {
  timespec t{};
  g_clock_gettime.load(std::memory_order_relaxed)(id, &t);
  return t;
}
inline std::uint64_t read_clock_ns(clockid_t id) {
  const timespec t = read_clock(id);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000ULL +
         static_cast<std::uint64_t>(t.tv_nsec);
}
inline std::uint64_t monotonic_ns() {
  return read_clock_ns(CLOCK_MONOTONIC) - g_clock_shifts.monotonic_ns;
}
inline std::uint64_t coarse_monotonic_ns() {
  return read_clock_ns(CLOCK_MONOTONIC_COARSE) - g_clock_shifts.monotonic_ns;
}
// The time since boot, including the time that the machine was suspended. This clock cannot be set.
inline std::uint64_t boot_ns() { return read_clock_ns(CLOCK_BOOTTIME) - g_clock_shifts.boot_ns; }
inline std::uint64_t wall_ns() { return read_clock_ns(CLOCK_REALTIME); }

}  // namespace cube::base
