// The prefetcher asks the other nodes for a file before it asks the origin.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "prefetch/work/prefetcher.h"
#include "tests/cache/cluster/cluster_fixture.h"

namespace cube::prefetch {
namespace {

class PrefetcherRemote : public ::testing::Test {
 protected:
  PrefetcherRemote() {
    Prefetcher::Options options;
    options.engine = base::EngineKind::threads;
    options.depth = 4;
    std::string why;
    prefetcher = Prefetcher::make(*node.cache.cache, options, why);
    EXPECT_NE(prefetcher, nullptr) << why;
  }
  // Returns false if the fetch does not end.
  bool fetch() {
    PlannedFile file;
    file.path = path;
    EXPECT_TRUE(prefetcher->offer(file));
    return cache::comes_true([&] { return prefetcher->is_idle(); });
  }

  cache::FakeMemcached server;
  cache::SharedFiles files;
  const std::string path = files.write("f", "content");
  // The records of this node are revalidated before each use.
  cache::ClusterNode node{files.dir.path(), server.name(), 16 * tests::k_mib,
                          /*job=*/{}, base::ConsistencyKind::open};
  std::unique_ptr<Prefetcher> prefetcher;
};

TEST_F(PrefetcherRemote, FileThatNoNodeHasIsFetchedFromTheOrigin) {
  ASSERT_TRUE(fetch());
  EXPECT_EQ(prefetcher->counts().fetched, 1U);
  EXPECT_EQ(node.count(base::Counter::origin_reads), 1U);
}

TEST_F(PrefetcherRemote, UnchangedFileInMemoryCountsAsCached) {
  ASSERT_TRUE(fetch());
  ASSERT_TRUE(fetch());
  EXPECT_EQ(prefetcher->counts().fetched, 1U);
  EXPECT_EQ(prefetcher->counts().cached, 1U);
  EXPECT_EQ(prefetcher->counts().refused, 0U);
}

}  // namespace
}  // namespace cube::prefetch
