// kill -9 at random moments: writers fetch and publish without end, their files change generation, and whoever reads
// them checks every byte. Content follows from path and generation, and the first 8 bytes are the generation.
#include <gtest/gtest.h>
#include <time.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cache/file_cache.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::KillCounts;
using tests::request_for;
using tests::Survivor;
using tests::TestRegion;

std::string file_content(const std::string& path, std::uint64_t generation, std::size_t size) {
  std::string text = tests::content_of(path, generation, size);
  std::memcpy(text.data(), &generation, sizeof generation);
  return text;
}
bool is_right(const std::string& path, std::string_view bytes) {
  if (bytes.size() < 8) return false;
  std::uint64_t generation = 0;
  std::memcpy(&generation, bytes.data(), sizeof generation);
  return bytes == file_content(path, generation, bytes.size());
}

struct Files {
  tests::TempDir dir;
  std::vector<std::string> paths;
  explicit Files(int n) {
    for (int i = 0; i < n; ++i) {
      const std::string path = dir / ("f" + std::to_string(i));
      paths.push_back(path);
      tests::TempDir::write_file(path, file_content(path, 0, size_of(i)));
    }
  }
  static std::size_t size_of(int i) {
    return i % 16 == 15 ? 2'200'000 + static_cast<std::size_t>(i) : 500 + static_cast<std::size_t>(i * 977 % 60'000);
  }
};

// A process that opens files at random, and now and then replaces one.
int work_until_killed(const TestRegion& region, const Files& files, unsigned seed, Gate& ready) {
  FileCache* const cache = tests::attach_cache(tests::config_for(region.options), region.options.job);
  CHILD_CHECK(cache != nullptr);
  ready.give();
  std::minstd_rand random(seed);
  for (std::uint64_t generation = seed;; ++generation) {
    const std::size_t i = random() % files.paths.size();
    const std::string& path = files.paths[i];
    const OpenOutcome outcome = cache->open(request_for(path));
    if (outcome.kernel_fd >= 0) close(outcome.kernel_fd);
    if (outcome.pin) {
      CHILD_CHECK(is_right(path, tests::bytes_of(*outcome.pin)));
    }
    if (random() % 8 != 0) continue;
    // As an editor saves: the new file is whole before it has the name.
    const std::string other = path + "." + std::to_string(getpid());
    tests::TempDir::write_file(other, file_content(path, generation, Files::size_of(static_cast<int>(i))));
    const auto stat = stat_path(AT_FDCWD, path.c_str(), 0);
    rename(other.c_str(), path.c_str());
    cache->content_changed(path, stat ? &*stat : nullptr);
  }
}

TEST(Kill, WritersAtRandomMomentsLeaveNothingWrong) {
  const int kills = tests::k_tsan || tests::k_asan ? 60 : 250;
  const Files files(48);
  auto region = std::make_unique<TestRegion>(48 * k_mib);
  auto survivor = std::make_unique<Survivor>(**region);
  KillCounts counts;
  std::minstd_rand random(4711);
  int generations = 1;
  for (int k = 0; k < kills;) {
    // A region that nothing is evicted from fills up; then a new one.
    if (survivor->tier().is_full() || (*region)->header().used_bytes.load() > 30 * k_mib) {
      survivor.reset();
      region = std::make_unique<TestRegion>(48 * k_mib);
      survivor = std::make_unique<Survivor>(**region);
      ++generations;
    }
    Gate ready;
    std::vector<Child> writers;
    for (unsigned w = 0; w < 2; ++w) {
      writers.emplace_back(
          [&, seed = static_cast<unsigned>(k) * 2 + w + 1] { return work_until_killed(*region, files, seed, ready); });
    }
    ASSERT_TRUE(ready.take(2));
    timespec pause{0, static_cast<long>(random() % 4'000'000)};
    nanosleep(&pause, nullptr);  // the moment of the kill, not a wait for anything
    for (auto& writer : writers) {
      writer.send(SIGKILL);
      const int status = writer.wait();
      EXPECT_EQ(status, -SIGKILL) << "a writer saw wrong bytes";
      counts.wrong_bytes += status == 1 ? 1 : 0;
      ++counts.kills;
      ++k;
    }
    survivor->check_tables(counts);
    for (const auto& path : files.paths) {
      ++counts.reads;
      const Pin pin = tests::find(survivor->tier(), path);
      if (!pin) continue;
      ++counts.records_found;
      if (!is_right(path, tests::bytes_of(*pin)) || !tests::is_sound(**region, *pin)) ++counts.wrong_bytes;
    }
    survivor->check_turn(files.paths[static_cast<std::size_t>(k) % files.paths.size()], counts);
  }
  std::printf("%d regions were filled\n", generations);
  counts.print("at random moments");
  EXPECT_TRUE(counts.is_clean());
  EXPECT_GE(counts.kills, kills);
}

// The same fetch again and again, killed by a timer a few microseconds later each time.
void kill_by_timer(std::size_t file_size, int kills, long step_ns, const char* what) {
  const tests::TempDir dir;
  const TestRegion region(240 * k_mib);
  Survivor survivor(*region);
  KillCounts counts;
  int finished = 0;
  const std::string content = file_content("f", 1, file_size);
  for (int k = 0; k < kills; ++k) {
    const std::string path = dir.write("f" + std::to_string(k), content);
    Child child([&] {
      FileCache* const cache = tests::attach_cache(tests::config_for(region.options), region.options.job);
      CHILD_CHECK(cache != nullptr);
      timer_t timer{};
      sigevent event{};
      event.sigev_notify = SIGEV_SIGNAL;
      event.sigev_signo = SIGKILL;
      CHILD_CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
      const itimerspec when{{0, 0}, {0, 1000 + k * step_ns}};
      timer_settime(timer, 0, &when, nullptr);
      const OpenOutcome outcome = cache->open(request_for(path));
      return outcome.pin ? 0 : 1;
    });
    const int status = child.wait();
    finished += status == 0 ? 1 : 0;
    counts.kills += status == -SIGKILL ? 1 : 0;
    survivor.check_record(path, content, counts);
    survivor.check_tables(counts);
    survivor.check_turn(path, counts);
  }
  std::printf("%d fetches were finished before the timer\n", finished);
  counts.print(what);
  EXPECT_TRUE(counts.is_clean());
  EXPECT_GT(counts.kills, 0);
}

TEST(Kill, ByATimerOverTheWholeOfOneFetch) { kill_by_timer(30'000, 100, 2000, "by a timer"); }

TEST(Kill, ByATimerOverTheFetchOfARun) { kill_by_timer(2'500'000, 60, 25'000, "by a timer, a run of segments"); }

}  // namespace
}  // namespace cube::cache
