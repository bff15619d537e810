// The segment of the ring that all processes fill. Files stay while processes need them, and the
// death of a process costs at most a hole.
#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

#include "cache/base/clock.h"
#include "cache/region/ring.h"
#include "tests/support/child.h"
#include "tests/support/ring_files.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::Gate;
using tests::k_mib;
using tests::TestRegion;

constexpr std::size_t k_bytes = 60'000;

std::string content(const std::string& path) { return tests::content_of(path, 0, k_bytes); }

base::Result<Pin> put_shared(RamTier& tier, const std::string& path, bool from_disk = false) {
  auto room = tier.reserve_shared(path.size(), k_bytes);
  if (!room) return base::fail(room.error().value);
  content(path).copy(reinterpret_cast<char*>(room->data()), k_bytes);
  RecordContent record = tests::content_for(path, k_bytes);
  record.from_disk = from_disk;
  return tests::publish(tier, std::move(*room), record);
}

struct RingSharedTest : testing::Test {
  TestRegion region{32 * k_mib};
  RamTier tier{*region};
  Ring& ring = tier.ring();
  int count = 0;

  RingSharedTest() { ring.make(8 * k_mib); }
  std::string next_path() { return "/data/" + std::to_string(count++); }
  bool has_living_disk = false;
  void disk_is_alive() {
    has_living_disk = true;
    region->header().disk_alive_ns.store(base::coarse_monotonic_ns());
  }
  void disk_is_dead_since(std::uint64_t ns) {
    has_living_disk = false;
    region->header().disk_alive_ns.store(ns);
  }
  // Fills the ring until there is no room, at most with three times its size.
  int fill(bool from_disk = false) {
    int put = 0;
    while (put < 400) {
      // On a slow machine, the loop takes longer than the time for which a disk may be silent.
      if (has_living_disk) disk_is_alive();
      if (!put_shared(tier, next_path(), from_disk)) break;
      ++put;
    }
    return put;
  }
  bool is_there(const std::string& path) {
    const Pin pin = tests::find(tier, path);
    return pin && tests::bytes_of(*pin) == content(path);
  }
};

TEST_F(RingSharedTest, TwoProcessesFillOneSegment) {
  RamTier other(*region);
  std::uint32_t segment = UINT32_MAX;
  for (int i = 0; i < 6; ++i) {
    const std::string path = next_path();
    const auto pin = put_shared(i % 2 == 0 ? tier : other, path);
    ASSERT_TRUE(pin);
    if (segment == UINT32_MAX) segment = ring.segment_of(**pin);
    EXPECT_EQ(ring.segment_of(**pin), segment);
    EXPECT_TRUE(ring.holds(**pin));
  }
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(is_there("/data/" + std::to_string(i)));
  EXPECT_EQ(ring.room(), 6 * k_mib);
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(RingSharedTest, UnopenedFilesMakeRoom) {
  const auto first = put_shared(tier, next_path());
  ASSERT_TRUE(first);
  EXPECT_EQ(fill(), 400);
  EXPECT_TRUE(is_there("/data/0")) << "it is open";
  EXPECT_TRUE(is_there("/data/400")) << "the last one";
  EXPECT_FALSE(is_there("/data/100"));
  EXPECT_EQ(tests::bytes_of(**first), content("/data/0"));
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(RingSharedTest, OpenFilesLeaveNoRoom) {
  std::vector<Pin> open;
  while (open.size() < 400) {
    auto pin = put_shared(tier, next_path());
    if (!pin) {
      EXPECT_EQ(pin.error().value, ENOSPC);
      break;
    }
    open.push_back(std::move(*pin));
  }
  EXPECT_LT(open.size(), 140U);
  for (const Pin& pin : open) EXPECT_EQ(tests::bytes_of(*pin), content(std::string(pin->path())));
  open.clear();
  EXPECT_TRUE(put_shared(tier, next_path()));
}

TEST_F(RingSharedTest, PrefetchedFilesAreNotEvicted) {
  ASSERT_TRUE(tests::put_in_ring(tier, "/ahead", content("/ahead")));
  tier.release_ring_lease();
  EXPECT_EQ(fill(), 400);
  EXPECT_TRUE(tests::open_right(tier, "/ahead", content("/ahead")));
  EXPECT_EQ(fill(), 400);
  EXPECT_FALSE(is_there("/ahead"));
}

TEST_F(RingSharedTest, SegmentThatIsFilledIsNotTheLeaders) {
  ASSERT_TRUE(put_shared(tier, "/shared"));
  int put = 0;
  while (tests::put_in_ring(tier, "/ahead/" + std::to_string(put),
                            content("/ahead/" + std::to_string(put))))
    ++put;
  EXPECT_GT(put, 60);
  EXPECT_TRUE(is_there("/shared"));
  EXPECT_TRUE(put_shared(tier, next_path()));
}

TEST_F(RingSharedTest, SegmentIsReusedWhileALeaderHasTheRest) {
  tier.prepare_shared();
  EXPECT_TRUE(ring.filling().is_any);
  int put = 0;
  while (tests::put_in_ring(tier, "/ahead/" + std::to_string(put),
                            content("/ahead/" + std::to_string(put))))
    ++put;
  EXPECT_GT(put, 60);
  EXPECT_EQ(ring.room(), 0U);
  EXPECT_EQ(fill(), 400);
  for (int i = 0; i < put; ++i) EXPECT_TRUE(is_there("/ahead/" + std::to_string(i)));
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(RingSharedTest, WaitsForRecordsThatAreNotOnTheDiskYet) {
  disk_is_alive();
  const int put = fill();
  EXPECT_GT(put, 100);
  EXPECT_LT(put, 140);
  EXPECT_EQ(ring.room(), 0U);
  SegmentRow& row = region->segment_row(ring.first_segment() + 1);
  row.flushed.store(row.fresh.load());
  disk_is_alive();
  EXPECT_EQ(ring.room(), 2 * k_mib);
  EXPECT_TRUE(put_shared(tier, next_path()));
  EXPECT_TRUE(is_there("/data/0")) << "another's segment";
}

TEST_F(RingSharedTest, DoesNotWaitForAHangingDisk) {
  disk_is_alive();
  EXPECT_LT(fill(), 140);
  disk_is_dead_since(base::coarse_monotonic_ns() - 3'000'000'000ULL);
  EXPECT_EQ(fill(), 400);
  disk_is_alive();
  EXPECT_LT(fill(), 140);
  disk_is_dead_since(0);
  EXPECT_EQ(fill(), 400);
}

TEST_F(RingSharedTest, DoesNotWaitForRecordsFromTheDisk) {
  disk_is_alive();
  EXPECT_EQ(fill(/*from_disk=*/true), 400);
}

TEST_F(RingSharedTest, KilledProcessLeavesAHole) {
  Gate ready;
  Child child([&] {
    Region* const own = tests::attach(region.options);
    CHILD_CHECK(own != nullptr);
    RamTier other(*own);
    CHILD_CHECK(put_shared(other, "/dead/0"));
    auto room = other.reserve_shared(10, k_bytes);
    CHILD_CHECK(room);
    ready.give();
    return tests::wait_for_death();
  });
  ASSERT_TRUE(ready.take());
  ASSERT_TRUE(put_shared(tier, next_path()));
  child.kill();
  region->reap();
  EXPECT_TRUE(is_there("/dead/0"));
  EXPECT_TRUE(is_there("/data/0"));
  std::vector<std::string> seen;
  const std::uint32_t segment = ring.filling().segment;
  tier.visit_segment(
      segment, [&](std::uint64_t, const Record& record) { seen.emplace_back(record.path()); });
  EXPECT_EQ(seen, (std::vector<std::string>{"/dead/0", "/data/0"}));
  EXPECT_EQ(fill(), 400);
  EXPECT_FALSE(is_there("/dead/0"));
  EXPECT_EQ(tests::counters_of(*region), "right");
}

TEST_F(RingSharedTest, RecordWithinTheDataOfAFileIsIgnored) {
  // The file's data contain a record, as in a pack.
  const auto inner = tests::put(tier, "/inner", "inner");
  ASSERT_TRUE(inner);
  std::string data(reinterpret_cast<const char*>(&**inner), (*inner)->record_size);
  auto room = tier.reserve_shared(6, data.size());
  ASSERT_TRUE(room);
  data.copy(reinterpret_cast<char*>(room->data()), data.size());
  const std::byte* const at = room->data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(at) % k_record_alignment, 0U);
  std::vector<std::string> seen;
  const auto look = [&] {
    seen.clear();
    tier.visit_segment(ring.filling().segment, [&](std::uint64_t, const Record& record) {
      seen.emplace_back(record.path());
    });
    return seen;
  };
  EXPECT_EQ(look(), std::vector<std::string>{}) << "not published yet";
  ASSERT_TRUE(tests::publish(tier, std::move(*room), tests::content_for("/outer", data.size())));
  EXPECT_EQ(look(), std::vector<std::string>{"/outer"});
}

TEST_F(RingSharedTest, ConcurrentThreadsSeeRightBytes) {
  constexpr int k_threads = 4, k_files = 1500;
  std::atomic<int> wrong{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < k_threads; ++t) {
    threads.emplace_back([&, t] {
      RamTier own(*region);
      std::vector<Pin> kept;
      for (int i = 0; i < k_files; ++i) {
        const std::string path = "/" + std::to_string(t) + "/" + std::to_string(i);
        auto pin = put_shared(own, path);
        if (pin) kept.push_back(std::move(*pin));
        refused += pin ? 0 : 1;
        if (kept.size() < 8) continue;
        for (const Pin& old : kept)
          wrong += tests::bytes_of(*old) == content(std::string(old->path())) ? 0 : 1;
        kept.clear();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_LT(refused.load(), k_threads * k_files);
  EXPECT_EQ(tests::counters_of(*region), "right");
  EXPECT_GE(ring.room(), 6 * k_mib);
}

}  // namespace
}  // namespace cube::cache
