// Many threads and processes at the same time, with every byte checked.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "cache/region/lanes.h"
#include "cache/region/ram/ram_tier.h"
#include "tests/support/child.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

using tests::Child;
using tests::k_mib;
using tests::TestRegion;

std::string path_of(std::uint64_t i) { return "/data/set/" + std::to_string(i); }
std::size_t size_of(std::uint64_t i) { return (i * 7919) % 60'000; }

// Publishes and finds files [0, files). Returns false at the first wrong byte.
bool work(RamTier& tier, const Region& region, std::uint64_t seed, std::uint64_t steps,
          std::uint64_t files) {
  std::uint64_t x = seed;
  for (std::uint64_t step = 0; step < steps; ++step) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    const std::uint64_t i = (x >> 33) % files;
    const std::string path = path_of(i);
    const Pin pin = tests::find(tier, path);
    if (!pin) {
      // A lack of room is not an error.
      (void)tests::put(tier, path, tests::content_of(path, 1, size_of(i)));
      continue;
    }
    if (tests::bytes_of(*pin) != tests::content_of(path, 1, size_of(i)) ||
        !tests::is_sound(region, *pin))
      return false;
    if ((x >> 20) % 64 == 0) tier.mark_stale(path);
  }
  return true;
}

TEST(RamTierThreads, ConcurrentPublishAndFindSeeRightBytes) {
  const TestRegion region(64 * k_mib);
  RamTier tier(*region);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] { wrong += work(tier, *region, t + 1, 3000, 500) ? 0 : 1; });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(pins_of(*region, region->own_slot()), 0U);
}

TEST(RamTierThreads, ConcurrentReserveAndGiveUpSeeRightBytes) {
  const TestRegion region(32 * k_mib);
  RamTier tier(*region);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 500; ++i) {
        const std::string path = "/t" + std::to_string(t) + "/" + std::to_string(i);
        {
          const auto room = tier.reserve(path.size(), 1000 + i);
          if (room) std::memset(room->data(), 0xee, 1000 + i);
        }
        const std::string data = tests::content_of(path, t, 500 + i);
        const auto pin = tests::put(tier, path, data);
        if (pin && tests::bytes_of(**pin) != data) ++wrong;
      }
      for (std::uint64_t i = 0; i < 500; ++i) {
        const std::string path = "/t" + std::to_string(t) + "/" + std::to_string(i);
        const Pin pin = tests::find(tier, path);
        if (!pin || tests::bytes_of(*pin) != tests::content_of(path, t, 500 + i)) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(RamTierThreads, ProcessesPublishLargeAndSmallRecordsConcurrently) {
  const TestRegion region(48 * k_mib);
  std::vector<Child> children;
  for (std::uint64_t c = 0; c < 3; ++c) {
    children.emplace_back([&] {
      Region* const mine = tests::attach(region.options);
      CHILD_CHECK(mine != nullptr);
      RamTier tier(*mine);
      std::vector<std::string> done;
      for (std::uint64_t i = 0; i < 60; ++i) {
        const std::string path = "/c" + std::to_string(c) + "/" + std::to_string(i);
        const std::size_t size = i % 12 == 0 ? 5 * k_mib / 2 + i : 20'000 + i;
        if (i % 12 == 6) (void)tier.reserve(10, 3 * k_mib);  // given up immediately
        if (tests::put(tier, path, tests::content_of(path, i, size)))
          done.push_back(path + "\n" + std::to_string(i) + "\n" + std::to_string(size));
      }
      for (const auto& line : done) {
        const std::size_t a = line.find('\n'), b = line.rfind('\n');
        const std::string path = line.substr(0, a);
        const Pin pin = tests::find(tier, path);
        CHILD_CHECK(pin && tests::bytes_of(*pin) ==
                               tests::content_of(path, std::stoull(line.substr(a + 1)),
                                                 std::stoull(line.substr(b + 1))));
      }
      CHILD_CHECK(done.size() > 20);
      return 0;
    });
  }
  for (auto& child : children) EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace cube::cache
