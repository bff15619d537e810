// Clocks. Durations are in nanoseconds. They are libc's own, whatever a preloaded library
// (libfaketime) makes the program believe: ages of records and deadlines are shared with processes
// that it does not know of, and with the kernel. In a time namespace the kernel shifts what counts
// from the boot. monotonic_ns and boot_ns take that back, for other processes of the node read
// these times, too. read_clock does not: for deadlines that the kernel is told. Thread safety and
// async-signal safety: yes (vDSO, no system call).
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace cube::base {

inline constexpr std::uint64_t k_ns_per_ms = 1'000'000;

// A system call until the constructor has found libc's.
extern constinit std::atomic<int (*)(clockid_t, timespec*)> g_clock_gettime;

// Modulo 2^64, for a shift may be negative. Written once, before there are threads; where /proc is
// missing it is zero.
struct ClockShifts {
  std::uint64_t monotonic_ns = 0, boot_ns = 0;
};
extern constinit ClockShifts g_clock_shifts;
// At the start of the process; later calls do nothing.
void find_clock_shifts();
// Lines as of /proc/self/timens_offsets. A line that is not understood shifts nothing.
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
// Since boot, sleep included; nobody sets it.
inline std::uint64_t boot_ns() { return read_clock_ns(CLOCK_BOOTTIME) - g_clock_shifts.boot_ns; }
inline std::uint64_t wall_ns() { return read_clock_ns(CLOCK_REALTIME); }

}  // namespace cube::base
