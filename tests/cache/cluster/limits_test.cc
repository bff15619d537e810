#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "cache/tier/cluster/cluster_key.h"
#include "cache/tier/cluster/home_server.h"
#include "cache/tier/cluster/limits/ahead_window.h"
#include "cache/tier/cluster/limits/askers.h"
#include "cache/tier/cluster/limits/circuit_breaker.h"
#include "cache/tier/cluster/limits/cold_pool.h"
#include "cache/tier/cluster/limits/lease_waits.h"
#include "cache/tier/cluster/limits/token_bucket.h"
#include "cache/tier/shared/cluster_paths.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_s = 1'000'000'000;

std::vector<std::string> servers(int n) {
  std::vector<std::string> texts;
  for (int i = 0; i < n; ++i) texts.push_back("10.0.0." + std::to_string(i) + ":11211");
  return texts;
}

TEST(ClusterPool, HomeOfAKeyDoesNotDependOnTheOrderOfTheList) {
  auto list = servers(5);
  auto turned = list;
  std::ranges::reverse(turned);
  for (std::uint64_t key = 1; key < 1000; ++key)
    EXPECT_EQ(list[home_of_key(list, key * 0x9e3779b97f4a7c15)],
              turned[home_of_key(turned, key * 0x9e3779b97f4a7c15)]);
}

TEST(ClusterPool, RemovedServerMovesOnlyItsShare) {
  const auto all = servers(5), fewer = servers(4);
  std::map<std::string, int> share;
  constexpr int k_keys = 10000;
  for (int i = 0; i < k_keys; ++i) {
    const std::uint64_t key = ClusterKey("space", 1, std::to_string(i)).hash();
    const std::string& before = all[home_of_key(all, key)];
    ++share[before];
    const std::string& after = fewer[home_of_key(fewer, key)];
    EXPECT_TRUE(before == all[4] || before == after);
  }
  for (const auto& [server, keys] : share) EXPECT_NEAR(keys, k_keys / 5, k_keys / 25) << server;
}

TEST(ClusterKey, ContainsNamespaceOriginAndPath) {
  const ClusterKey key("team-a", ClusterKey::hash_of_origin("/mnt/data"), "train/0/a.jpg");
  EXPECT_EQ(key.text().size(), 4 + 6 + 32U);
  EXPECT_TRUE(key.text().starts_with("cs2:team-a"));
  std::set<std::string> all{std::string(key.text())};
  all.emplace(
      ClusterKey("team-b", ClusterKey::hash_of_origin("/mnt/data"), "train/0/a.jpg").text());
  all.emplace(
      ClusterKey("team-a", ClusterKey::hash_of_origin("/mnt/other"), "train/0/a.jpg").text());
  all.emplace(
      ClusterKey("team-a", ClusterKey::hash_of_origin("/mnt/data"), "train/0/b.jpg").text());
  EXPECT_EQ(all.size(), 4U);
  EXPECT_EQ(ClusterKey(std::string(64, 'n'), 0, "").text().size(), 100U);
}

TEST(ClusterPaths, PlaceDoesNotDependOnMountPoints) {
  const auto place = [](const char* prefixes, const char* origins, const char* path) {
    const auto parsed = base::parse_config([&](std::string_view name) -> const char* {
      return name == "CUBESHIM_PREFIXES"         ? prefixes
             : name == "CUBESHIM_CLUSTER_ORIGIN" ? origins
                                                 : nullptr;
    });
    EXPECT_TRUE(parsed.errors.empty());
    const ClusterPaths paths(parsed.config);
    const auto found = paths.place_of(path);
    return found ? std::to_string(found->origin) + " " + std::string(found->below) : "none";
  };
  EXPECT_EQ(place("/mnt/a", "/mnt/a=set", "/mnt/a/x/y"),
            place("/data/b", "/data/b=set", "/data/b/x/y"));
  EXPECT_NE(place("/mnt/a", "", "/mnt/a/x"), place("/mnt/b", "", "/mnt/b/x"));
  EXPECT_EQ(place("/mnt", "/mnt/a=one:/mnt/a/b=two", "/mnt/a/b/x"), place("/n", "/n=two", "/n/x"))
      << "the innermost names it";
  EXPECT_EQ(place("/mnt", "", "/elsewhere/x"), "none");
  EXPECT_EQ(place("/mnt", "/mnt=set", "/mnt"), place("/n", "/n=set", "/n"))
      << "the prefix has a place of its own: its listing";
}

TEST(ClusterSettings, ServerListIsAcceptedOrRefusedAsAWhole) {
  const auto servers_of = [](const char* text) {
    const auto parsed = base::parse_config(
        [&](std::string_view name) { return name == "CUBESHIM_CLUSTER" ? text : nullptr; });
    std::string said = parsed.errors.empty() ? "" : "wrong";
    for (const std::string& server : parsed.config.cluster.texts)
      said += (said.empty() ? "" : " ") + server;
    return said;
  };
  EXPECT_EQ(servers_of("memcached://10.0.0.1,cache-2:7,[fd00::1],[::1]:9"),
            "10.0.0.1:11211 cache-2:7 [fd00::1]:11211 [::1]:9");
  EXPECT_EQ(servers_of("memcached:///run/m.sock,a:1"), "/run/m.sock a:1");
  EXPECT_EQ(servers_of(""), "");
  for (const char* const wrong :
       {"10.0.0.1", "redis://a", "memcached://", "memcached://a,,b", "memcached://a,a:11211",
        "memcached://a:0", "memcached://a:65536", "memcached://a:x", "memcached://[::1",
        "memcached://[]", "memcached://::1", "memcached://a b", "memcached://a/b", "memcached:///",
        "memcached:///a,/a"})
    EXPECT_EQ(servers_of(wrong), "wrong") << wrong;
}

TEST(ClusterSettings, JobComesFromNoVariableOfALauncher) {
  const auto job_of = [](std::string_view variable) {
    return base::parse_config(
               [&](std::string_view name) { return name == variable ? "7" : nullptr; })
        .config.cluster_job;
  };
  EXPECT_EQ(job_of("CUBESHIM_CLUSTER_JOB"), "7");
  for (const char* const launchers : {"SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID",
                                      "PBS_JOBID", "LSB_JOBID", "RAY_JOB_ID"})
    EXPECT_EQ(job_of(launchers), "") << launchers;
}

TEST(CircuitBreaker, RestsLongerEachTimeAndGetsOneTrial) {
  CircuitBreaker trip;
  EXPECT_TRUE(trip.may_ask(0));
  std::uint64_t now = k_s;
  for (const std::uint64_t seconds : {1, 2, 4, 8, 16, 30, 30}) {
    trip.rest(now);
    EXPECT_FALSE(trip.allows_requests(now + seconds * k_s - 1)) << seconds;
    EXPECT_FALSE(trip.may_ask(now + seconds * k_s - 1));
    now += seconds * k_s;
    EXPECT_TRUE(trip.allows_requests(now));
    EXPECT_TRUE(trip.may_ask(now));
    EXPECT_FALSE(trip.may_ask(now)) << "one trial";
  }
  EXPECT_FALSE(trip.note_answer(/*is_late=*/false));
  EXPECT_TRUE(trip.may_ask(now) && trip.may_ask(now));
  trip.rest(now);
  EXPECT_TRUE(trip.allows_requests(now + k_s)) << "a good answer resets the breaker";
  trip.rest(now, 30 * k_s);
  EXPECT_FALSE(trip.allows_requests(now + 29 * k_s));
}

TEST(CircuitBreaker, AbandonedTrialPassesToTheNextAsker) {
  CircuitBreaker trip;
  trip.rest(0);
  EXPECT_TRUE(trip.may_ask(2 * k_s));
  EXPECT_FALSE(trip.may_ask(2 * k_s));
  trip.give_up_trial();
  EXPECT_TRUE(trip.may_ask(2 * k_s));
  EXPECT_FALSE(trip.may_ask(2 * k_s));
  EXPECT_TRUE(trip.note_answer(/*is_late=*/true)) << "it is a trial still";
}

TEST(CircuitBreaker, TripsAtThreeLateAnswersOfTheLast64) {
  CircuitBreaker trip;
  EXPECT_FALSE(trip.note_answer(true));
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(trip.note_answer(false));
  EXPECT_FALSE(trip.note_answer(true));
  for (int i = 0; i < 30; ++i) EXPECT_FALSE(trip.note_answer(false));
  EXPECT_FALSE(trip.note_answer(true)) << "the first is long ago";
  EXPECT_TRUE(trip.note_answer(true));
  EXPECT_FALSE(trip.note_answer(true, /*most_late=*/16));
}

TEST(TokenBucket, KeepsToItsRateAndAllowsAShortBurst) {
  std::atomic<std::uint64_t> word{0};
  constexpr std::uint64_t k_rate = 64 << 20, k_size = 1 << 20;
  std::uint64_t sent = 0;
  for (std::uint64_t now = k_s; now < 3 * k_s; now += k_s / 1000) {
    while (TokenBucket::take(word, now, k_size, k_rate)) sent += k_size;
  }
  EXPECT_NEAR(static_cast<double>(sent), 2.0 * k_rate, 0.25 * k_rate);
  EXPECT_FALSE(TokenBucket::take(word, 3 * k_s, 1, 0));
  word = 1000 * k_s;
  EXPECT_TRUE(TokenBucket::take(word, 4 * k_s, 1, k_rate)) << "nobody has made that";
}

TEST(TokenBucket, LargeFileBlocksTheBucketForItsFullTime) {
  std::atomic<std::uint64_t> word{0};
  constexpr std::uint64_t k_rate = 64 << 10, k_size = 16 << 20;
  EXPECT_TRUE(TokenBucket::take(word, k_s, k_size, k_rate));
  EXPECT_FALSE(TokenBucket::take(word, 2 * k_s, k_size, k_rate));
  EXPECT_FALSE(TokenBucket::take(word, 250 * k_s, 1, k_rate)) << "256 s";
  EXPECT_TRUE(TokenBucket::take(word, 258 * k_s, 1, k_rate));
}

// The word is in memory to which other processes can write.
TEST(TokenBucket, CorruptWordCausesNoOverflow) {
  for (const std::uint64_t rate : {std::uint64_t{1}, std::uint64_t{64} << 20, UINT64_MAX}) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 24, UINT64_MAX}) {
      std::atomic<std::uint64_t> word{UINT64_MAX};
      EXPECT_TRUE(TokenBucket::take(word, 5 * k_s, bytes, rate)) << bytes << " at " << rate;
      EXPECT_GE(word, 5 * k_s);
      EXPECT_LE(word, 5 * k_s + 366 * 86400 * k_s) << "no overflow";
    }
  }
}

TEST(ColdPool, AsksOneIn16UntilThereAreHits) {
  ColdPool pool;
  const auto asked = [&](int of) {
    int n = 0;
    for (int i = 0; i < of; ++i) n += pool.is_to_ask() ? 1 : 0;
    return n;
  };
  EXPECT_EQ(asked(100), 100);
  for (int i = 0; i < 32; ++i) pool.note(i == 0);
  EXPECT_EQ(asked(160), 10) << "one hit of the first 32";
  for (int i = 0; i < 100; ++i) pool.note(false);
  EXPECT_EQ(asked(160), 10);
  pool.note(true);
  EXPECT_EQ(asked(100), 100) << "a hit, and all ask";
  for (int i = 0; i < 32; ++i) pool.note(false);
  EXPECT_EQ(asked(160), 10) << "for 32 answers, if there is no other";
  pool.note(true);
  for (int i = 0; i < 32; ++i) pool.note(i < 2);
  for (int i = 0; i < 256; ++i) pool.note(i % 16 == 0);
  EXPECT_EQ(asked(100), 100) << "6 % are enough";
  for (int i = 0; i < 256; ++i) pool.note(i % 32 == 0);
  EXPECT_EQ(asked(160), 10) << "3 % are not";
}

TEST(Askers, AllWaitIfNoMoreHaveRecentlyAskedConcurrently) {
  Askers askers;
  EXPECT_FALSE(askers.are_all_waiting()) << "nobody waits";
  askers.note(1);
  EXPECT_TRUE(askers.are_all_waiting());
  askers.note(2);
  EXPECT_TRUE(askers.are_all_waiting());
  askers.note(1);
  EXPECT_FALSE(askers.are_all_waiting()) << "a second one may come";
  askers.note(0);
  EXPECT_FALSE(askers.are_all_waiting());
  for (int i = 0; i < 2048; ++i) askers.note(1);
  EXPECT_TRUE(askers.are_all_waiting()) << "the second has not asked for long";
}

TEST(AheadWindow, LeavesRequestsToProgramsWhileAnswersAreHeld) {
  AheadWindow window(1);
  for (unsigned i = 0; i < AheadWindow::k_most_held; ++i) window.hold();
  std::atomic<bool> is_begun{false}, is_held{false};
  std::thread another([&] {
    is_begun = true;
    window.hold();
    is_held = true;
  });
  while (!is_begun) std::this_thread::yield();
  // If the thread were wrongly held, this would show within these yields.
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(is_held);
  window.let_go();
  another.join();
  EXPECT_TRUE(is_held);
}

// If a node takes leases but stores no records, the other nodes do not wait for each block.
TEST(LeaseWaits, AreRareIfTheBytesDoNotCome) {
  LeaseWaits waits;
  const auto waited_of_64 = [&](bool comes) {
    int waited = 0;
    for (int i = 0; i < 64; ++i) {
      if (!waits.is_to_wait()) continue;
      ++waited;
      waits.note(comes);
    }
    return waited;
  };
  EXPECT_EQ(waited_of_64(true), 64);
  EXPECT_LE(waited_of_64(false), 17 + 6);
  EXPECT_EQ(waited_of_64(false), 8);
  // Only one request in eight waits, until half of the last waits were useful again.
  for (int i = 0; i < 3; ++i) waited_of_64(true);
  EXPECT_EQ(waited_of_64(true), 64);
}

}  // namespace
}  // namespace cube::cache
