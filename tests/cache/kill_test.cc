// kill -9 at random moments. Writers fetch and publish in an endless loop, their files change their
// generation, and readers check every byte. The path and the generation determine the content of a
// file. Its first 8 bytes are the generation.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cache/file_cache.h"
#include "tests/support/child.h"
#include "tests/support/effort.h"
#include "tests/support/sanitizers.h"
#include "tests/support/survivor.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::KillCounts;
using tests::request_for;
using tests::Survivor;
using tests::TestRegion;
using tests::Tracee;

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
    return i % 16 == 15 ? 2'200'000 + static_cast<std::size_t>(i)
                        : 500 + static_cast<std::size_t>(i * 977 % 60'000);
  }
};

// A process that opens files at random, and sometimes replaces a file.
int work_until_killed(const TestRegion& region, const Files& files, unsigned seed, Gate& ready) {
  FileCache* const cache =
      tests::attach_cache(tests::config_for(region.options), region.options.job);
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
    // Like a save in an editor: the new file is complete before it gets the name.
    const std::string other = path + "." + std::to_string(getpid());
    tests::TempDir::write_file(other,
                               file_content(path, generation, Files::size_of(static_cast<int>(i))));
    const auto stat = stat_path(AT_FDCWD, path.c_str(), 0);
    rename(other.c_str(), path.c_str());
    cache->changes().content_changed(path, stat ? &*stat : nullptr);
  }
}

TEST(Kill, WritersKilledAtRandomMomentsLeaveNoWrongByte) {
  const int kills = tests::k_tsan || tests::k_asan ? 40 : tests::rounds(80, 250);
  const Files files(48);
  auto region = std::make_unique<TestRegion>(48 * k_mib);
  auto survivor = std::make_unique<Survivor>(**region);
  KillCounts counts;
  std::minstd_rand random(4711);
  int generations = 1;
  for (int k = 0; k < kills;) {
    // The region evicts nothing. When it is full, the test makes a new region.
    if (survivor->tier().is_full() || (*region)->header().used_bytes.load() > 30 * k_mib) {
      survivor.reset();
      region = std::make_unique<TestRegion>(48 * k_mib);
      survivor = std::make_unique<Survivor>(**region);
      ++generations;
    }
    Gate ready;
    std::vector<Child> writers;
    for (unsigned w = 0; w < 2; ++w) {
      writers.emplace_back([&, seed = static_cast<unsigned>(k) * 2 + w + 1] {
        return work_until_killed(*region, files, seed, ready);
      });
    }
    ASSERT_TRUE(ready.take(2));
    timespec pause{0, static_cast<long>(random() % 4'000'000)};
    nanosleep(&pause, nullptr);  // chooses the moment of the kill; waits for nothing
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
      if (!is_right(path, tests::bytes_of(*pin)) || !tests::is_sound(**region, *pin))
        ++counts.wrong_bytes;
    }
    survivor->check_turn(files.paths[static_cast<std::size_t>(k) % files.paths.size()], counts);
  }
  std::printf("%d regions were filled\n", generations);
  counts.print("at random moments");
  EXPECT_TRUE(counts.is_clean());
  EXPECT_GE(counts.kills, kills);
}

// The step of a fetch at which a process was killed, as the survivor sees it in the region.
enum class Stage { before_reading, before_index, before_confirm, before_close, after_close };
constexpr int k_stages = 5;
constexpr const char* k_stage_names[] = {"reading", "writing the record", "confirming", "using",
                                         "leaving"};

// One fetch in its own process: open, close, detach. Each raise is a mark for the tracer.
int live_once(const TestRegion& region, const std::string& path) {
  FileCache* const cache =
      tests::attach_cache(tests::config_for(region.options), region.options.job);
  CHILD_CHECK(cache != nullptr);
  raise(SIGSTOP);
  OpenOutcome outcome = cache->open(request_for(path));
  CHILD_CHECK(outcome.pin && is_right(path, tests::bytes_of(*outcome.pin)));
  raise(SIGSTOP);
  outcome.pin.release();
  cache->detach();
  return 0;
}

int live_once_unmarked(const TestRegion& region, const std::string& path) {
  FileCache* const cache =
      tests::attach_cache(tests::config_for(region.options), region.options.job);
  CHILD_CHECK(cache != nullptr && cache->open(request_for(path)).pin);
  cache->detach();
  return 0;
}

// The record of the path in the index, confirmed or not.
const Record* record_in_index(const TestRegion& region, const std::string& path) {
  const Record* found = nullptr;
  Index(*region).visit(base::hash_path(path), [&](const RecordPlace& place) {
    const auto* const record =
        reinterpret_cast<const Record*>(region->segment(place.segment) + place.offset);
    if (record->path_length == path.size() && record->path() == path) found = record;
    return found != nullptr;
  });
  return found;
}

struct Lengths {
  long read_stops = 0;  // system calls up to the end of the read
  long in_index = 0, confirmed = 0, opened = 0,
       left = 0;  // instructions after it; `left` counts system calls
};

// A child that has just read the file.
Tracee child_that_has_read(const TestRegion& region, const std::string& path) {
  Tracee child([&] { return live_once(region, path); });
  EXPECT_TRUE(child.to_stop());
  EXPECT_TRUE(child.to_exit_of(SYS_preadv));
  return child;
}

Lengths measure(const TestRegion& region, const std::string& path) {
  Lengths lengths;
  {
    Tracee child([&] { return live_once(region, path); });
    EXPECT_TRUE(child.to_stop());
    while (!child.at_entry_of(SYS_preadv) && child.to_system_call()) ++lengths.read_stops;
  }
  Tracee child = child_that_has_read(region, path);
  for (long n = 1; child.step() && !child.is_at_raise(); ++n) {
    lengths.opened = n;
    const Record* const record = record_in_index(region, path);
    if (record == nullptr) continue;
    if (lengths.in_index == 0) lengths.in_index = n;
    if (lengths.confirmed == 0 && !record->is_stale()) lengths.confirmed = n;
  }
  while (child.to_system_call()) ++lengths.left;
  return lengths;
}

Stage stage_after_read(const TestRegion& region, const std::string& path) {
  const Record* const record = record_in_index(region, path);
  if (record == nullptr) return Stage::before_index;
  return record->is_stale() ? Stage::before_confirm : Stage::before_close;
}

// Each stage gets the same number of kills, spread evenly over its instructions (or over system
// calls, if it waits for the kernel).
TEST(Kill, FetchKilledAtAnyStageLeavesNoWrongByte) {
  if (tests::k_tsan) GTEST_SKIP() << "too slow in single steps";
  constexpr int k_kills = tests::k_asan ? 4 : 12;
  constexpr std::size_t k_size = 100;
  const tests::TempDir dir;
  const TestRegion region(64 * k_mib);
  Survivor survivor(*region);
  KillCounts counts;
  int killed[k_stages] = {};
  auto new_file = [&, n = 0]() mutable {
    const std::string path = dir / ("f" + std::to_string(n++));
    tests::TempDir::write_file(path, file_content(path, 1, k_size));
    return path;
  };
  const std::string first = new_file();
  Lengths lengths;
  // The first fetch leases a new segment, which takes longer.
  ASSERT_EQ(Child([&] { return live_once_unmarked(region, first); }).wait(), 0);
  lengths = measure(region, new_file());
  survivor.check_tables(counts);
  std::printf(
      "to the read %ld system call stops; then it is in the index after %ld instructions, "
      "confirmed after %ld, open after %ld\n",
      lengths.read_stops, lengths.in_index, lengths.confirmed, lengths.opened);
  ASSERT_GT(lengths.in_index, 0);
  ASSERT_GT(lengths.confirmed, lengths.in_index);
  ASSERT_GT(lengths.opened, lengths.confirmed);
  const std::pair<long, long> after_read[] = {{1, lengths.in_index},
                                              {lengths.in_index, lengths.confirmed},
                                              {lengths.confirmed, lengths.opened}};
  for (int s = 0; s < k_stages; ++s) {
    for (int k = 0; k < k_kills; ++k) {
      const std::string path = new_file();
      const auto at = [&](long from, long to) {
        return from + (to - from) * (2 * k + 1) / (2 * k_kills);
      };
      auto stage = static_cast<Stage>(s);
      Tracee child([&] { return live_once(region, path); });
      ASSERT_TRUE(child.to_stop());
      if (stage == Stage::before_reading) {
        for (long i = at(0, lengths.read_stops);
             i > 0 && child.to_system_call() && !child.at_entry_of(SYS_preadv); --i) {
        }
      } else if (stage == Stage::after_close) {
        ASSERT_TRUE(child.to_stop());
        for (long i = at(0, lengths.left); i > 0 && child.to_system_call(); --i) {
        }
      } else {
        ASSERT_TRUE(child.to_exit_of(SYS_preadv));
        const auto& [from, to] = after_read[s - 1];
        for (long i = at(from, to); i > 0 && child.step() && !child.is_at_raise(); --i) {
        }
        stage = stage_after_read(region, path);
      }
      if (child.is_alive()) {
        ++killed[static_cast<int>(stage)];
        ++counts.kills;
      }
      child.kill();
      survivor.check_record(path, file_content(path, 1, k_size), counts);
      survivor.check_tables(counts);
      survivor.check_turn(path, counts);
    }
  }
  for (int s = 0; s < k_stages; ++s) {
    std::printf("killed while %s: %d\n", k_stage_names[s], killed[s]);
    EXPECT_GE(killed[s], k_kills / 2) << k_stage_names[s];
  }
  counts.print("over the life of a fetch");
  EXPECT_TRUE(counts.is_clean());
  EXPECT_GE(counts.records_found, 2 * k_kills * 3 / 4) << "of those killed while using and leaving";
}

// Publishing a record of several segments takes too many single steps. So the test lets
// the process run for some time after its read, and then kills it. About half of the kills precede
// the record's index entry.
TEST(Kill, FetchKilledWithinARunOfSegmentsLeavesNoWrongByte) {
  constexpr int k_each = tests::k_asan || tests::k_tsan ? 5 : 15;
  constexpr std::size_t k_size = 2'500'000;
  constexpr int k_per_region = 40;  // each takes two segments of 120
  const tests::TempDir dir;
  auto region = std::make_unique<TestRegion>(240 * k_mib);
  auto survivor = std::make_unique<Survivor>(**region);
  KillCounts counts;
  int killed[k_stages] = {};
  std::uint64_t longest_ns = 1'000'000;
  std::minstd_rand random(11);
  const auto enough = [&] {
    return killed[static_cast<int>(Stage::before_index)] >= k_each &&
           killed[static_cast<int>(Stage::before_close)] >= k_each;
  };
  for (int k = 0; k < 40 * k_each && !enough(); ++k) {
    if (k % k_per_region == k_per_region - 1) {
      survivor.reset();
      region = std::make_unique<TestRegion>(240 * k_mib);
      survivor = std::make_unique<Survivor>(**region);
    }
    const std::string path = dir / ("f" + std::to_string(k));
    const std::string content = file_content(path, 1, k_size);
    tests::TempDir::write_file(path, content);
    Tracee child = child_that_has_read(*region, path);
    const std::uint64_t pause = random() % longest_ns;
    child.run_for(pause);
    // If the kill came too late, the longest pause becomes shorter; if too early, longer. It
    // settles at twice the time of a publish.
    const Stage stage = stage_after_read(*region, path);
    longest_ns = stage == Stage::before_index ? longest_ns + longest_ns / 10
                                              : std::max<std::uint64_t>(longest_ns * 9 / 10, 1'000);
    ++killed[static_cast<int>(stage)];
    child.kill();
    ++counts.kills;
    survivor->check_record(path, content, counts);
    survivor->check_tables(counts);
    survivor->check_turn(path, counts);
    unlink(path.c_str());
  }
  std::printf("killed before it was in the index %d, unconfirmed %d, after %d\n", killed[1],
              killed[2], killed[3]);
  counts.print("by the clock, a run of segments");
  EXPECT_TRUE(counts.is_clean());
  EXPECT_TRUE(enough());
}

}  // namespace
}  // namespace cube::cache
