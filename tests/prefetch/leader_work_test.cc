// If a list does not fit into the cache, a leader leaves the rest of the list to the next leader,
// no matter when it ends.
#include "prefetch/work/leader_work.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/prefetch/announce_client.h"
#include "tests/support/sanitizers.h"
#include "tests/support/small_cache.h"

namespace cube::prefetch {
namespace {

using tests::k_mib;
using tests::SmallCache;

struct LeadTest : ::testing::Test {
  static constexpr std::uint64_t k_of_list = (1ULL << 48) - 1;  // bits of JobRow::listed
  SmallCache files;
  cache::FileCache& cache = *files.cache.cache;
  base::Config& config = files.cache.config;
  cache::LeadClaim claim = cache.ahead().lead_claim();
  EventCount events;
  std::unique_ptr<LeaderWork> lead;
  std::size_t fetched = 0;  // files in memory, counted from the first one

  // By default, the list has more files than the cache can hold.
  explicit LeadTest(int of_list = 500) : files(of_list) {
    files.list_all(/*depth=*/4);
    EXPECT_TRUE(claim.look(base::monotonic_ns()));
  }
  void TearDown() override {
    if (lead != nullptr) lead->end(10'000);
    lead.reset();
    claim.give_up();
  }
  void begin() {
    lead = std::make_unique<LeaderWork>(cache, config, events, claim);
    ASSERT_TRUE(lead->begin());
    lead->open();
  }
  void end() {
    lead->end(10'000);
    lead.reset();
  }
  bool is_there(std::size_t i) {
    return static_cast<bool>(cache.find(tests::request_for(files.paths[i])));
  }
  void note_fetched() {
    while (fetched < files.paths.size() && is_there(fetched)) ++fetched;
  }
  // The number of fetches that may be in flight, recomputed by each turn().
  unsigned depth() {
    std::atomic<std::uint32_t>& depth = cache.region().header().lead_depth;
    for (depth = 0; depth == 0;) lead->turn();
    return depth;
  }
  std::size_t listed() { return cache.ahead().listed_of_job().load() & k_of_list; }
  // Runs until the ring is full, nothing is in flight, and files of the list wait for room in the
  // ring.
  void fill() {
    const std::uint64_t until = base::monotonic_ns() + 60'000'000'000;
    while (base::monotonic_ns() < until &&
           (cache.ahead().ring_room() >= 2 * SmallCache::k_bytes || listed() != fetched)) {
      lead->turn();
      note_fetched();
      ASSERT_LE(listed(), fetched) << "the next leader would leave one out";
    }
    ASSERT_EQ(listed(), fetched);
    ASSERT_LT(fetched, files.paths.size());
  }
};

struct ShortListLeadTest : LeadTest {
  ShortListLeadTest() : LeadTest(20) {}
};

TEST_F(LeadTest, NextLeaderBeginsWithTheFirstFileWithoutRoom) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NO_FATAL_FAILURE(fill());
  end();
  note_fetched();
  ASSERT_LT(fetched, files.paths.size());
  ASSERT_LE(listed(), fetched);
  ASSERT_NO_FATAL_FAILURE(begin());
  const std::uint64_t until = base::monotonic_ns() + 60'000'000'000;
  // Programs read the cached files and so make room.
  SmallCache::Counts counts;
  for (std::size_t i = 0; !is_there(fetched) && base::monotonic_ns() < until;
       i = (i + 1) % files.paths.size()) {
    if (is_there(i)) files.open(cache, files.paths[i], counts);
    lead->turn();
  }
  EXPECT_TRUE(is_there(fetched)) << listed() << " of " << fetched;
  EXPECT_EQ(counts.wrong, 0);
}

// Another thread stops the leader in the middle of a turn().
TEST_F(LeadTest, FilesThatWaitWhenALeaderIsStoppedGoToTheNext) {
  ASSERT_NO_FATAL_FAILURE(begin());
  ASSERT_NO_FATAL_FAILURE(fill());
  lead->stop(0);
  lead->turn();
  note_fetched();
  EXPECT_LE(listed(), fetched);
}

// Each fetch in flight takes two fds, and the program needs the rest.
TEST_F(ShortListLeadTest, NoMoreFetchesAreInFlightThanThereAreFds) {
  config.prefetch_depth = 16;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{.rlim_cur = 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  lead = std::make_unique<LeaderWork>(cache, config, events, claim);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(lead->begin());
  lead->open();
  EXPECT_EQ(depth(), 4U);
}

TEST_F(ShortListLeadTest, GivesWayToAnotherJobThatFetchesUnplannedFiles) {
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(depth(), 4U);
  cache::ProcessSlot& other = cache.region().process_slot(cache.region().own_slot() + 1);
  other.job = cache.ahead().own_job() + 1;
  other.used = 1;
  cache.region().header().slots_reached = cache.region().own_slot() + 2;
  // The first check records how much the other job has fetched so far.
  depth();
  other.demand_fetches += 1000;
  EXPECT_EQ(depth(), 1U);
  other.used = 0;
}

// If the rank counted as ahead, its next files would wait until every other rank is equally far
// ahead.
TEST_F(ShortListLeadTest, RankWithCachedFilesDoesNotCountAsAhead) {
  config.prefetch_list.clear();
  // Fetches the files one by one, so that they are in memory in order.
  config.prefetch_depth = 1;
  SmallCache::Counts counts;
  files.open(cache, files.paths[0], counts);
  ASSERT_NO_FATAL_FAILURE(begin());
  const auto client = [&](std::uint32_t rank) {
    testing::AnnounceClient made(cache.ahead().socket_path());
    // When the server answers, it has read the messages of the other clients.
    EXPECT_EQ(made.hear().size(), sizeof(WelcomeMessage));
    EXPECT_TRUE(made.say(testing::hello(rank)));
    EXPECT_TRUE(made.say(testing::begin(0)));
    return made;
  };
  const testing::AnnounceClient first = client(0);
  constexpr std::size_t k_known = 100;
  ASSERT_TRUE(first.say(testing::paths(0, 0, std::vector<std::string>(k_known, files.paths[0]))));
  const testing::AnnounceClient second = client(1);
  lead->turn();
  lead->turn();
  ASSERT_TRUE(second.say(testing::paths(0, 0, {files.paths.begin() + 2, files.paths.end()})));
  ASSERT_TRUE(first.say(testing::paths(0, k_known, {files.paths[1]})));
  client(2);
  while (!is_there(files.paths.size() - 1)) lead->turn();
  ASSERT_TRUE(is_there(1));
  const auto place_of = [&](std::size_t i) {
    return cache.region().offset_in_data(&*cache.find(tests::request_for(files.paths[i])));
  };
  EXPECT_LT(place_of(1), place_of(3));
}

}  // namespace
}  // namespace cube::prefetch
