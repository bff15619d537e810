// The fetcher of large files, without a list.
#include "prefetch/work/large_fetcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "prefetch/work/prefetcher.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

struct Client final : LargeClient {
  std::unique_ptr<LargeFetch> ended;
  std::atomic<bool> has_ended{false};

  void large_ended(std::unique_ptr<LargeFetch> fetch) override {
    ended = std::move(fetch);
    has_ended = true;
  }
};

// This test comes first, because the process treats memory as full for a while after the next test.
TEST(LargeFetcher, FileIsReportedAsFetchedOnceAndThenAsCached) {
  tests::TestCache cache{64 * tests::k_mib,
                         [](base::Config& config) { config.max_file = tests::k_mib; }};
  const tests::TempDir dir;
  const std::string path = dir.write("f", std::string(3 * tests::k_mib, 'x'));
  const timespec old[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), old, 0), 0);
  Prefetcher::Options options;
  options.engine = base::EngineKind::threads;
  std::string why;
  const auto prefetcher = Prefetcher::make(*cache.cache, options, why);
  ASSERT_NE(prefetcher, nullptr) << why;
  for (int i = 0; i < 2; ++i) {
    PlannedFile file;
    file.path = path;
    ASSERT_TRUE(prefetcher->offer(file));
    while (!prefetcher->is_idle()) std::this_thread::yield();
    const PrefetchCounts counts = prefetcher->counts();
    EXPECT_EQ(counts.large, 1U + i);
    EXPECT_EQ(counts.fetched, 1U);
    EXPECT_EQ(counts.cached, 0U + i);
  }
}

// `cubeshim warmup` computes the remaining time from the pending bytes.
TEST(LargeFetcher, FileWithoutRoomLeavesNoBytesPending) {
  tests::TestCache cache{16 * tests::k_mib,
                         [](base::Config& config) { config.max_file = tests::k_mib; }};
  const tests::TempDir dir;
  const std::string path = dir.write("f", "x");
  ASSERT_EQ(truncate(path.c_str(), 64 * tests::k_mib), 0);
  Client client;
  const auto fetcher = LargeFetcher::make(*cache.cache, client, 0, /*asks_for_blocks=*/false);
  auto fetch = std::make_unique<LargeFetch>();
  fetch->file.path = path;
  ASSERT_TRUE(fetcher->submit(fetch));
  while (!client.has_ended) std::this_thread::yield();
  EXPECT_EQ(client.ended->ending, LargeFetch::Ending::no_room);
  EXPECT_GT(client.ended->missing, 0U);
  EXPECT_EQ(fetcher->bytes_to_come(), 0U);
  EXPECT_EQ(fetcher->measured(), 0U);
  fetcher->stop(60'000);
}

}  // namespace
}  // namespace cube::prefetch
