#include "shim/cli/bench/bench_pass.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cache/base/clock.h"
#include "shim/cli/bench/bench_sample.h"
#include "tests/support/temp_dir.h"

namespace {

std::uint64_t g_advice_ns = 0;

}  // namespace

// Waits for some time, like the real call for a file with many pages in memory.
extern "C" int posix_fadvise(int, off_t, off_t, int) {
  const std::uint64_t began = cube::base::monotonic_ns();
  while (cube::base::monotonic_ns() < began + 20'000'000) {
  }
  g_advice_ns += cube::base::monotonic_ns() - began;
  return 0;
}

namespace cube::cli {
namespace {

std::vector<std::string> make_files(const std::string& directory, int count) {
  std::vector<std::string> paths;
  for (int i = 0; i < count; ++i) {
    paths.push_back(directory + "/" + std::to_string(i));
    std::ofstream(paths.back()) << "text";
  }
  return paths;
}

TEST(BenchPass, ExcludesTheTimeToDropPages) {
  const tests::TempDir directory;
  const auto paths = make_files(directory.path(), 1);
  const std::uint64_t began = base::monotonic_ns();
  const Pass pass = read_files(paths, {.drop_pages = true});
  const std::uint64_t took = base::monotonic_ns() - began;
  ASSERT_EQ(pass.whole.count(), 1U);
  ASSERT_GE(g_advice_ns, 20'000'000U);
  EXPECT_LE(pass.whole.all()[0] + g_advice_ns, took);
}

TEST(BenchPass, TimesAreMicroseconds) {
  Timings timings;
  for (const std::uint64_t ns : {7000, 5000, 9000}) timings.add(ns);
  EXPECT_DOUBLE_EQ(timings.us(0.5), 7);
  EXPECT_DOUBLE_EQ(timings.us(1), 9);
}

TEST(BenchSample, InterruptedListingIsNotTimed) {
  const tests::TempDir directory;
  make_files(directory.path(), 5);
  const SampleLimits limits{.files = 5, .listed = 5, .in_flight = 2, .until_ns = UINT64_MAX};
  const BenchSample whole = take_bench_sample(directory.path(), limits);
  EXPECT_TRUE(whole.is_whole);
  EXPECT_EQ(whole.list_one.whole.count(), 1U);
  make_files(directory.path(), 9);
  const BenchSample part = take_bench_sample(directory.path(), limits);
  EXPECT_FALSE(part.is_whole);
  EXPECT_EQ(part.list_one.whole.count(), 0U);
}

}  // namespace
}  // namespace cube::cli
