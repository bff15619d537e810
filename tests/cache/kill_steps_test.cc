// kill -9 at every step: at each system call of a process's life with the cache, and between the
// instructions of a publish. After each kill, another process must find either nothing or a
// complete and correct record, and must be able to continue.
#include <gtest/gtest.h>

#include "cache/file_cache.h"
#include "tests/support/sanitizers.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::k_mib;
using tests::KillCounts;
using tests::RegionName;
using tests::request_for;
using tests::Survivor;
using tests::TestRegion;
using tests::Tracee;

// Another process attaches, opens the file, and checks it. Afterwards it must still be able to
// publish another file.
int open_as_survivor(const base::Config& config, const std::string& path,
                     const std::string& expected) {
  return tests::run_in_child([&] {
    FileCache* const cache = tests::attach_cache(config, base::current_process());
    CHILD_CHECK(cache != nullptr);
    const std::uint64_t began = base::monotonic_ns();
    const OpenOutcome outcome = cache->open(request_for(path));
    // A waiter gives up after a second or two and gets no pin, and a busy machine may take that
    // long.
    if (base::monotonic_ns() - began > 60'000'000'000) return 2;
    CHILD_CHECK(outcome.pin && tests::bytes_of(*outcome.pin) == expected);
    CHILD_CHECK(tests::is_sound(cache->region(), *outcome.pin));
    return 0;
  });
}

// A process attaches (and creates the region), has a miss and a hit, and detaches. It is killed at
// the entry or exit of its n-th system call, and the next process continues with the state that it
// has left.
TEST(KillSteps, KillAtEachSystemCallFromAttachToDetachIsHarmless) {
  const tests::TempDir dir;
  const std::string content = tests::content_of("f", 1, 50'000);
  const std::string path = dir.write("f", content);
  KillCounts counts;
  bool ended = false;
  for (int n = 1; !ended && n < 2000; ++n) {
    RegionName name(8 * k_mib);
    name.options.job.start_time -= 2;  // the id of a job that has ended
    const base::Config config = tests::config_for(name.options);
    Tracee child([&] {
      FileCache* const cache = tests::attach_cache(config, name.options.job);
      CHILD_CHECK(cache != nullptr);
      CHILD_CHECK(cache->open(request_for(path)).pin);
      CHILD_CHECK(cache->open(request_for(path)).pin);
      cache->detach();
      return 0;
    });
    for (int i = 0; i < n && child.to_system_call(); ++i) {
    }
    ended = !child.is_alive();
    if (ended) {
      EXPECT_EQ(child.exit_status(), 0);
      EXPECT_FALSE(tests::exists(name.path()));
      break;
    }
    child.kill();
    ++counts.kills;
    ++counts.reads;
    const int status = open_as_survivor(config, path, content);
    counts.hangs += status == 2 ? 1 : 0;
    EXPECT_EQ(status, 0) << "killed at system call stop " << n;
    if (counts.hangs > 2) break;
  }
  counts.print("at every system call");
  EXPECT_TRUE(ended || counts.hangs > 0);
  EXPECT_TRUE(counts.is_clean());
}

// Like the test above, but another process is alive. So no new region is made, and everything that
// the dead process has left remains.
TEST(KillSteps, KillAtEachSystemCallBesideALivingProcessIsHarmless) {
  const tests::TempDir dir;
  const TestRegion region(32 * k_mib);
  Survivor survivor(*region);
  const base::Config config = tests::config_for(region.options);
  KillCounts counts;
  bool ended = false;
  for (int n = 1; !ended && n < 2000; ++n) {
    const std::string content = tests::content_of("f", static_cast<std::uint64_t>(n), 20'000);
    const std::string path = dir.write("f" + std::to_string(n), content);
    Tracee child([&] {
      FileCache* const cache = tests::attach_cache(config, region.options.job);
      CHILD_CHECK(cache != nullptr);
      CHILD_CHECK(cache->open(request_for(path)).pin);
      cache->detach();
      return 0;
    });
    for (int i = 0; i < n && child.to_system_call(); ++i) {
    }
    ended = !child.is_alive();
    child.kill();
    counts.kills += ended ? 0 : 1;
    survivor.check_record(path, content, counts);
    survivor.check_tables(counts);
    // Tests the file's flight from a process that gets the slot of the dead process.
    const int status = open_as_survivor(config, path, content);
    counts.hangs += status == 2 ? 1 : 0;
    EXPECT_TRUE(status == 0) << "killed at system call stop " << n;
    if (counts.hangs > 3) break;
  }
  counts.print("at every system call, beside a living process");
  EXPECT_TRUE(counts.is_clean());
}

TEST(KillSteps, KillAtAnyInstructionOfPublishIsHarmless) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  constexpr std::size_t file_size = 1000;
  constexpr int kills = tests::k_asan ? 40 : 80;
  const TestRegion region(64 * k_mib);
  Survivor survivor(*region);
  KillCounts counts;
  int bracketed = 0;
  const auto child_that_publishes = [&](const std::string& path, const std::string& content) {
    return Tracee([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      RamTier tier(*mine);
      auto room = tier.reserve(path.size(), content.size());
      CHILD_CHECK(room);
      content.copy(reinterpret_cast<char*>(room->data()), content.size());
      raise(SIGSTOP);
      const auto pin =
          tests::publish(tier, std::move(*room), tests::content_for(path, content.size()));
      raise(SIGSTOP);
      return pin ? 0 : 1;
    });
  };
  // Counts the instructions, and finds the instruction at which the record appears.
  long length = 0, appears = 0;
  {
    const std::string content = tests::content_of("/measure", 0, file_size);
    Tracee child = child_that_publishes("/measure", content);
    ASSERT_TRUE(child.to_stop());
    while (child.step() && !child.is_at_raise()) {
      ++length;
      if (appears == 0 && tests::find(survivor.tier(), "/measure")) appears = length;
    }
  }
  survivor.check_tables(counts);
  ASSERT_GT(appears, 0);
  for (int k = 0; k < kills; ++k) {
    const std::string path = "/f" + std::to_string(k);
    const std::string content = tests::content_of(path, static_cast<std::uint64_t>(k), file_size);
    Tracee child = child_that_publishes(path, content);
    ASSERT_TRUE(child.to_stop());
    // Half of the kills are spread evenly, half are near the store that makes the record visible.
    long at = k % 2 == 0 ? length * k / kills : appears - 300;
    for (long i = 0; i < at && child.step(); ++i) {
    }
    if (k % 2 == 1) {
      while (child.step() && !child.is_at_raise() && !tests::find(survivor.tier(), path)) {
      }
      for (at = 0; at < k && !child.is_at_raise() && child.step(); ++at) {
      }
    }
    child.kill();
    ++counts.kills;
    const int before = counts.records_found;
    survivor.check_record(path, content, counts);
    bracketed += counts.records_found - before;
    survivor.check_tables(counts);
    const auto again = tests::put(survivor.tier(), path + "/next", content);
    EXPECT_TRUE(again || k > 20) << "no room after " << k << " kills";
    if (again) survivor.check_record(path + "/next", content, counts);
  }
  std::printf(
      "publish has %ld instructions, the record appears at %ld; found after %d of %d kills\n",
      length, appears, bracketed, kills);
  counts.print("within publish");
  EXPECT_GT(bracketed, kills / 10);
  EXPECT_LT(bracketed, kills * 9 / 10);
  EXPECT_TRUE(counts.is_clean());
}

// Covers all of reserve that follows the lease of the first segment.
TEST(KillSteps, KillAtAnyInstructionOfReserveIsHarmless) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  const TestRegion region(64 * k_mib);
  Survivor survivor(*region);
  KillCounts counts;
  bool ended = false;
  for (int k = 0; k < 80 && !ended; ++k) {
    Tracee child([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      RamTier tier(*mine);
      raise(SIGSTOP);
      (void)tier.reserve(10, 1000);
      raise(SIGSTOP);
      return 0;
    });
    ASSERT_TRUE(child.to_stop());
    for (int i = 0; i < k * 37 && child.step() && !ended; ++i) ended = child.is_at_raise();
    child.kill();
    ++counts.kills;
    survivor.check_tables(counts);
    const std::string path = "/f" + std::to_string(k);
    RamTier tier(*region);
    EXPECT_TRUE(tests::put(tier, path, path));
    survivor.check_record(path, path, counts);
    tier.release_lease();
  }
  counts.print("within reserve");
  EXPECT_TRUE(counts.is_clean());
  EXPECT_EQ(counts.records_found, counts.kills);
}

}  // namespace
}  // namespace cube::cache
