// The rates and the time left that a long command shows.
#include "shim/cli/warmup/progress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace cube::cli {

// Replaces functions of settings.h and wrong_use.h, because their sources take long to compile.
std::string in_units(std::uint64_t bytes) { return fmt::format("{} bytes", bytes); }
CLI::Validator whole_number(std::uint64_t /*least*/, std::uint64_t /*most*/) { return {}; }

namespace {

constexpr std::uint64_t k_second_ns = 1'000'000'000;

Rate rate_of(std::uint64_t files_per_s) {
  Rate rate;
  rate.add({}, 0);
  rate.add({.files = files_per_s}, k_second_ns);
  return rate;
}

TEST(Rate, CoversTheLastSeconds) {
  Rate rate;
  Tally tally;
  rate.add(tally, 0);
  tally.files = 1000;
  for (std::uint64_t second = 10; second <= 30; ++second) {
    rate.add(tally, second * k_second_ns);
    ++tally.files;
  }
  EXPECT_NEAR(rate.files(), 1, 0.1);
}

TEST(Tally, FilesOfKnownSizeAreExpectedOnce) {
  const Tally tally{
      .files = 1, .bytes = 100, .total_files = 3, .measured_files = 1, .bytes_to_come = 100};
  EXPECT_EQ(tally.expected_bytes(), 200) << "the rest of the second file, and the third one";
}

TEST(ProgressText, ShowsTheTimeLeftUntilTheCountIsExceeded) {
  Tally tally{.files = 9, .total_files = 10, .is_total_final = true};
  EXPECT_EQ(progress_text(tally, rate_of(1)),
            "9 of 10 files, 0 bytes, 0 bytes/s, 1 files/s, 0:01 left");
  tally.files = 11;
  EXPECT_EQ(progress_text(tally, rate_of(1)), "11 of 10 files, 0 bytes, 0 bytes/s, 1 files/s");
}

}  // namespace
}  // namespace cube::cli
