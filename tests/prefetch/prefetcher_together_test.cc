// Files that are offered in the order of a pack are read with few requests. In any other order,
// each file is read with its own request.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/origin/origins.h"
#include "prefetch/work/prefetcher.h"
#include "tests/pack/sample_tree.h"
#include "tests/support/test_region.h"

namespace cube::prefetch {
namespace {

using base::Counter;

struct PrefetcherTogether : ::testing::Test {
  static constexpr int k_files = 600;
  tests::SampleTree tree;
  tests::TestCache cache{64 << 20};
  std::unique_ptr<cache::Origins> origins;
  std::vector<std::string> paths;
  std::unique_ptr<Prefetcher> prefetcher;

  void SetUp() override {
    for (int i = 0; i < k_files; ++i)
      tree.write("d" + std::to_string(i / 200) + "/f" + std::to_string(1000 + i), content(i));
    ASSERT_EQ(tree.make(), "");
    for (const auto& [name, bytes] : tree.files) paths.push_back(tree.root + "/" + name);
    std::vector<std::string> errors;
    origins = cache::Origins::open({{.prefix = tree.root, .file = tree.pack}}, {}, errors);
    ASSERT_TRUE(errors.empty()) << errors.front();
    cache->use_origins(origins.get());
    std::string why;
    prefetcher = Prefetcher::make(*cache.cache, {.depth = 8, .prefixes = {tree.root}}, why);
    ASSERT_NE(prefetcher, nullptr) << why;
  }
  static std::string content(int i) {
    return tests::content_of(3000 + i % 7 * 500, static_cast<unsigned>(i));
  }
  void fetch(const std::vector<std::string>& all) {
    std::uint64_t sequence = 0;
    for (const std::string& path : all) {
      PlannedFile file;
      file.path = path;
      file.reader = 3;
      file.sequence = sequence++;
      for (auto seen = prefetcher->progress().now(); !prefetcher->offer(file);
           seen = prefetcher->progress().now())
        prefetcher->progress().wait(seen, 10'000'000);
    }
    for (auto seen = prefetcher->progress().now(); !prefetcher->is_idle();
         seen = prefetcher->progress().now())
      prefetcher->progress().wait(seen, 10'000'000);
  }
  void expect_all() {
    for (const auto& [name, bytes] : tree.files) {
      const auto outcome = cache->open(tests::request_for(tree.root + "/" + name));
      ASSERT_TRUE(outcome.pin) << name;
      EXPECT_FALSE(outcome.was_fetched) << name;
      EXPECT_EQ(tests::bytes_of(*outcome.pin), bytes) << name;
    }
    EXPECT_EQ(cache.count(Counter::misses), 0U);
  }
  std::uint64_t reads() const { return cache.count(Counter::origin_reads); }
  std::uint32_t settled() {
    std::uint32_t n = 0;
    for (const Settled& row : prefetcher->take_settled()) n += row.files;
    return n;
  }
};

TEST_F(PrefetcherTogether, FewRequestsFetchAllInTheOrderOfThePack) {
  fetch(paths);
  EXPECT_EQ(prefetcher->counts().fetched, static_cast<std::uint64_t>(k_files));
  EXPECT_LT(reads(), k_files / 10U);
  EXPECT_EQ(settled(), static_cast<std::uint32_t>(k_files));
  EXPECT_FALSE(prefetcher->first_unended(3));
  EXPECT_EQ(prefetcher->in_flight(), 0U);
  expect_all();
}

TEST_F(PrefetcherTogether, EachFileIsReadAloneInAnyOtherOrder) {
  std::reverse(paths.begin(), paths.end());
  fetch(paths);
  EXPECT_EQ(reads(), static_cast<std::uint64_t>(k_files));
  expect_all();
}

TEST_F(PrefetcherTogether, CachedFilesEndImmediately) {
  std::vector<std::string> middle(paths.begin() + 100, paths.begin() + 400);
  fetch(middle);
  fetch(paths);
  EXPECT_EQ(prefetcher->counts().cached, 300U);
  EXPECT_EQ(prefetcher->counts().fetched, static_cast<std::uint64_t>(k_files));
  EXPECT_EQ(settled(), 900U);
  EXPECT_EQ(prefetcher->in_flight(), 0U);
  expect_all();
}

TEST_F(PrefetcherTogether, FilesInBetweenEndSeparately) {
  std::vector<std::string> all;
  for (int i = 0; i < k_files; ++i) {
    all.push_back(paths[i]);
    if (i % 50 == 0) all.push_back(tree.root + "/none" + std::to_string(i));
    if (i == 320) all.push_back(tree.root + "/d1");
  }
  fetch(all);
  EXPECT_EQ(prefetcher->counts().fetched, static_cast<std::uint64_t>(k_files));
  EXPECT_EQ(prefetcher->counts().refused, 13U);
  EXPECT_EQ(prefetcher->in_flight(), 0U);
  EXPECT_EQ(settled(), k_files + 13U);
  expect_all();
}

}  // namespace
}  // namespace cube::prefetch
