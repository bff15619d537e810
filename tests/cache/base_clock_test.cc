// Times that processes in different time namespaces can share.
#include "cache/base/clock.h"

#include <gtest/gtest.h>

namespace cube::base {
namespace {

constexpr std::uint64_t k_second = 1'000'000'000;

TEST(Clock, ParsesTimeNamespaceOffsets) {
  const ClockShifts shifts =
      parse_clock_shifts("monotonic           7         5\nboottime       100000         0\n");
  EXPECT_EQ(shifts.monotonic_ns, 7 * k_second + 5);
  EXPECT_EQ(shifts.boot_ns, 100'000 * k_second);
  EXPECT_EQ(parse_clock_shifts("boottime -3 0\n").boot_ns + 3 * k_second, 0U);
}

TEST(Clock, IgnoresMalformedOffsets) {
  for (const char* const text : {"", "\n", "boottime", "boottime 1", "other 1 2", "boottime x y"}) {
    const ClockShifts shifts = parse_clock_shifts(text);
    EXPECT_EQ(shifts.monotonic_ns, 0U) << text;
    EXPECT_EQ(shifts.boot_ns, 0U) << text;
  }
}

}  // namespace
}  // namespace cube::base
