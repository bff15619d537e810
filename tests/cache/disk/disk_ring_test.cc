// Data larger than memory, with a disk. Everything that passes through the ring reaches the disk,
// even if processes are killed during the work.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "cache/base/clock.h"
#include "cache/region/lanes.h"
#include "cache/tier/tier_writer.h"
#include "tests/support/child.h"
#include "tests/support/ring_files.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

using base::Counter;
using tests::Child;
using tests::k_mib;
using tests::request_for;

constexpr int k_files = 300;
constexpr std::size_t k_bytes = 100'000;

std::string content(std::size_t i) { return tests::content_of(std::to_string(i), 0, k_bytes); }

struct DiskRingTest : testing::Test {
  tests::TempDir origin, disk;
  tests::RegionName region{16 * k_mib};
  base::Config config = tests::config_for(region.options);
  std::vector<std::string> paths;
  FileCache* cache = nullptr;

  DiskRingTest() {
    for (std::size_t i = 0; i < k_files; ++i) {
      paths.push_back(origin.write(std::to_string(i), content(i)));
      const timespec old[2] = {{1'600'000'000, 0}, {1'600'000'000, 0}};
      utimensat(AT_FDCWD, paths.back().c_str(), old, 0);
    }
    config.disk_dir = disk.path();
    config.disk = {.is_percent = false, .value = 512 * k_mib};
    cache = tests::attach_cache(config, region.options.job);
    if (cache == nullptr || cache->tiers().is_empty()) _exit(98);
  }
  ~DiskRingTest() override { cache->detach(); }

  // Opens a file as a program does. Returns true if its bytes are right.
  static bool open(FileCache& by, const std::string& path, std::size_t i) {
    const OpenOutcome outcome = by.open(request_for(path));
    if (outcome.pin) return tests::bytes_of(*outcome.pin) == content(i);
    if (outcome.kernel_fd < 0) return false;
    std::string bytes(k_bytes + 1, '#');
    const ssize_t n = read(outcome.kernel_fd, bytes.data(), bytes.size());
    close(outcome.kernel_fd);
    return n == static_cast<ssize_t>(k_bytes) && bytes.compare(0, k_bytes, content(i)) == 0;
  }
  void open_all() {
    for (std::size_t i = 0; i < paths.size(); ++i)
      EXPECT_TRUE(open(*cache, paths[i], i)) << paths[i];
  }
  // Opens all files, and runs the writer often enough that all of them can pass through the ring.
  void open_all_and_write(TierWriter& writer) {
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (i % 10 == 0) {
        ASSERT_TRUE(writer.pass([] { return true; }));
      }
      EXPECT_TRUE(open(*cache, paths[i], i));
    }
    ASSERT_TRUE(writer.pass([] { return true; }));
  }
  std::uint64_t count(Counter counter) const { return tests::counted(*cache, counter); }
  std::uint64_t on_disk() const { return (*cache->tiers().begin())->status().entries; }
};

TEST_F(DiskRingTest, WithoutAWriterNothingPassesThrough) {
  open_all();
  EXPECT_TRUE(cache->ahead().ring().is_made());
  EXPECT_FALSE(cache->ahead().ring().is_in_use());
  EXPECT_GT(count(Counter::bypassed_full), 0U);
}

TEST_F(DiskRingTest, WriterThatKeepsUpStoresEveryRecord) {
  TierWriter writer = cache->tier_writer();
  ASSERT_NO_FATAL_FAILURE(open_all_and_write(writer));
  EXPECT_EQ(on_disk(), paths.size());
  EXPECT_EQ(count(Counter::misses), paths.size());
  EXPECT_EQ(count(Counter::bypassed_full), 0U);
  open_all();
  EXPECT_EQ(count(Counter::misses), paths.size());
  EXPECT_EQ(count(Counter::hits_disk) + count(Counter::hits_ram), paths.size());
  EXPECT_EQ(count(Counter::origin_opens), paths.size());
  // A record that was read from the disk is not written to it again.
  EXPECT_EQ(*writer.pass([] { return true; }), 0);
  EXPECT_EQ(on_disk(), paths.size());
}

// The disk hit uses an fd for a moment. An fd that a signal handler parks in that time is then no
// longer the lowest free fd.
TEST_F(DiskRingTest, DiskHitReportsTheFdThatItOpenedAndClosed) {
  TierWriter writer = cache->tier_writer();
  ASSERT_NO_FATAL_FAILURE(open_all_and_write(writer));
  for (const std::string& path : paths) {
    const std::uint64_t before = count(Counter::hits_disk);
    const OpenOutcome outcome = cache->open(request_for(path));
    ASSERT_TRUE(outcome.pin);
    const int free_fd = dup(STDIN_FILENO);
    close(free_fd);
    EXPECT_EQ(outcome.freed_fd, count(Counter::hits_disk) != before ? free_fd : -1);
    EXPECT_FALSE(outcome.was_fetched);
  }
  EXPECT_GT(count(Counter::hits_disk), 0U);
}

TEST_F(DiskRingTest, KeepsRecordsThatAreNotWrittenYet) {
  TierWriter writer = cache->tier_writer();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    cache->region().header().disk_alive_ns.store(base::coarse_monotonic_ns());
    EXPECT_TRUE(open(*cache, paths[i], i));
  }
  EXPECT_GT(count(Counter::bypassed_full), 0U) << "more than there is room for";
  const std::uint64_t kept = count(Counter::misses);
  ASSERT_TRUE(writer.pass([] { return true; }));
  EXPECT_EQ(on_disk(), kept);
}

// A resident segment can join the ring, so it is pinned like any other segment.
TEST_F(DiskRingTest, PinsASegmentWhileItIsWritten) {
  struct LookingTier final : Tier {
    explicit LookingTier(Region& of) : Tier(0), region(of) {}
    Region& region;
    int segments = 0, held = 0;
    base::Result<void> offer(std::span<const std::byte> bytes,
                             std::span<const std::uint64_t>) override {
      const auto segment = static_cast<std::uint32_t>(region.offset_in_data(bytes.data()) /
                                                      region.layout().segment_bytes);
      ++segments;
      held += pins_of(region, region.own_slot(), segment) != 0 ? 1 : 0;
      return {};
    }
    bool visit(std::string_view, Judge&) override { return false; }
    void end_offers() override {}
    void content_changed(std::string_view, const FileStat*) override {}
    void tree_changed() override {}
    base::TierStatus status() const override { return {}; }
    void abandon() override {}
  } tier(cache->region());
  open_all();
  Tiers tiers;
  tiers.add(tier);
  RamTier ram(cache->region());
  ASSERT_TRUE(TierWriter(ram, tiers).pass([] { return true; }));
  EXPECT_GT(tier.segments, 2);
  EXPECT_EQ(tier.held, tier.segments);
}

TEST_F(DiskRingTest, ChangedFileIsSeenImmediatelyInMemoryAndOnDisk) {
  TierWriter writer = cache->tier_writer();
  ASSERT_NO_FATAL_FAILURE(open_all_and_write(writer));
  for (const std::size_t i : {std::size_t{0}, paths.size() / 2, paths.size() - 1}) {
    const auto before = stat_path(AT_FDCWD, paths[i].c_str(), 0);
    ASSERT_TRUE(before);
    cache->changes().writing_begins(paths[i], *before);
    tests::TempDir::write_file(paths[i], content(i + 1000));
    cache->changes().writing_ends(*before);
    EXPECT_TRUE(open(*cache, paths[i], i + 1000)) << i;
    EXPECT_TRUE(open(*cache, paths[i], i + 1000)) << i;
  }
}

TEST_F(DiskRingTest, KilledReadersDisturbNoOtherProcess) {
  constexpr int k_readers = 3;
  const int rounds = tests::k_asan || tests::k_tsan ? 6 : 30;
  std::atomic<bool> over{false};
  std::thread writing([&] {
    TierWriter writer = cache->tier_writer();
    while (!over.load()) {
      EXPECT_TRUE(writer.pass([] { return true; }));
      cache->region().reap();
    }
    writer.end();
  });
  const auto read_without_end = [&](unsigned seed) {
    FileCache* const own = tests::attach_cache(config, region.options.job);
    CHILD_CHECK(own != nullptr && !own->tiers().is_empty());
    std::minstd_rand random(seed);
    while (true) {
      const std::size_t i = random() % paths.size();
      CHILD_CHECK(open(*own, paths[i], i));
    }
  };
  std::vector<Child> readers;
  unsigned seed = 1;
  for (int i = 0; i < k_readers; ++i) {
    ++seed;
    readers.emplace_back([&] { return read_without_end(seed); });
  }
  std::minstd_rand random(7);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t n = 0, opens = random() % 40; n < opens; ++n) {
      const std::size_t i = random() % paths.size();
      EXPECT_TRUE(open(*cache, paths[i], i));
    }
    Child& victim = readers[random() % readers.size()];
    victim.send(SIGKILL);
    EXPECT_EQ(victim.wait(), -SIGKILL) << "a wrong byte";
    ++seed;
    victim = Child([&] { return read_without_end(seed); });
  }
  for (Child& reader : readers) {
    reader.send(SIGKILL);
    EXPECT_EQ(reader.wait(), -SIGKILL) << "a wrong byte";
  }
  over.store(true);
  writing.join();
  EXPECT_GT(on_disk(), paths.size() / 2);
  EXPECT_TRUE(cache->ahead().ring().is_in_use());
  cache->region().reap();
  // All segments except the one that is being filled are free.
  Ring& ring = cache->ahead().ring();
  const RegionLayout& layout = cache->region().layout();
  EXPECT_GE(ring.room(),
            std::uint64_t{layout.segment_bytes} * (ring.end_segment() - ring.first_segment() - 1));
  open_all();
  EXPECT_EQ(tests::counters_of(cache->region(), static_cast<std::uint64_t>(rounds) + k_readers),
            "right");
}

}  // namespace
}  // namespace cube::cache
