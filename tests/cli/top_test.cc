// The figures that `cubeshim top` reads from a cache, and the text that it prints for them.
#include <gtest/gtest.h>

#include <algorithm>

#include "shim/cli/top/top_gauge.h"
#include "shim/cli/top/top_sample.h"
#include "shim/cli/top/top_table.h"
#include "tests/support/attached_child.h"

namespace cube::cli {
namespace {

using tests::Child;

std::vector<pid_t> processes_of(WatchedCaches& caches, pid_t job) {
  std::vector<std::string> troubles;
  std::vector<pid_t> pids;
  for (const CacheLook& cache : caches.look(troubles)) {
    for (const JobRise& found : cache.jobs) {
      if (found.pid != static_cast<std::uint32_t>(job)) continue;
      for (const JobRise& process : found.processes)
        pids.push_back(static_cast<pid_t>(process.pid));
    }
  }
  EXPECT_TRUE(troubles.empty());
  std::sort(pids.begin(), pids.end());
  return pids;
}

TEST(WatchedCaches, JobHasOnlyItsLivingProcesses) {
  const tests::TestRegion region;
  Child same = tests::attached_child(region.options);
  tests::Gate ready;
  const Child other([&] {
    auto options = region.options;
    options.job = base::current_process();
    CHILD_CHECK(tests::attach(options) != nullptr);
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  WatchedCaches caches(region.options.directory, region.options.name);
  std::vector<pid_t> own{getpid(), same.pid()};
  std::sort(own.begin(), own.end());
  EXPECT_EQ(processes_of(caches, getpid()), own);
  EXPECT_EQ(processes_of(caches, other.pid()), std::vector{other.pid()});
  same.kill();
  EXPECT_EQ(processes_of(caches, getpid()), std::vector{getpid()}) << "nobody has reaped it yet";
}

TEST(TopTable, NumbersHaveThreeDigitsAtMost) {
  EXPECT_EQ(short_bytes(999.4 * 1024), "999K");
  EXPECT_EQ(short_bytes(999.6 * 1024), "1.0M");
  EXPECT_EQ(short_count(999.6), "1.0k");
}

TEST(TopTable, EndedJobSumsLargeFilesOfCacheAndKernel) {
  JobRise job;
  auto& totals = job.totals.totals;
  const auto set = [&](base::Counter counter, std::uint64_t n) {
    totals.counters[static_cast<std::size_t>(counter)] = n;
  };
  set(base::Counter::large_opens, 1);
  set(base::Counter::block_read, 1 << 20);
  set(base::Counter::block_kernel, 3 << 20);
  EXPECT_TRUE(line_of_ended(job).ends_with(", 4.0M of large files\n")) << line_of_ended(job);
}

TEST(TopGauge, LineIsCutToWholeCharacters) {
  ScreenLine line{"a\u2581\u2582\u2583"};
  cut(line, 4);
  EXPECT_EQ(line.text, "a\u2581\u2582\u2583");
  cut(line, 3);
  EXPECT_EQ(line.text, "a\u2581\u2582");
}

}  // namespace
}  // namespace cube::cli
