// How `auto` decides: with engines of fixed speed and a simulated clock, and with the real engines.
#include "prefetch/engine/engine_choice.h"

#include <cerrno>
#include <cmath>
#include <deque>
#include <random>

#include "prefetch/engine/engine_trial.h"
#include "tests/prefetch/test_client.h"
#include "tests/support/temp_dir.h"

namespace cube::prefetch::testing {
namespace {

// The decision of a trial in which the ring is faster by the factor `ring`, and the time of each
// batch varies by up to the share `noise`.
Side decide(double ring, double noise, std::mt19937& random) {
  std::uniform_real_distribution<double> off(1 - noise, 1 + noise);
  EngineTrial trial;
  while (!trial.is_decided()) {
    trial.batch_took(
        static_cast<std::uint64_t>(1e6 * off(random) / (trial.side() == Side::uring ? ring : 1.0)));
  }
  return trial.side();
}

TEST(EngineTrial, AlternatesEnginesAndReversesTheirOrder) {
  const auto sides = [](std::uint64_t ring) {
    EngineTrial trial;
    std::string found;
    while (!trial.is_decided()) {
      found += trial.side() == Side::uring ? 'u' : 't';
      trial.batch_took(trial.side() == Side::uring ? ring : 100);
    }
    return found + (trial.side() == Side::uring ? ": u" : ": t");
  };
  EXPECT_EQ(sides(100), "tuuttu: t") << "no difference";
  EXPECT_EQ(sides(50), "tuuttuuttuuttuuttu: u");
}

TEST(EngineTrial, FasterEngineWinsDespiteDrift) {
  for (const double ring : {0.7, 0.9, 1.3, 2.0}) {
    EngineTrial trial;
    double drift = 1;
    while (!trial.is_decided()) {
      trial.batch_took(
          static_cast<std::uint64_t>(1e6 * drift / (trial.side() == Side::uring ? ring : 1.0)));
      drift *= 1.1;
    }
    EXPECT_EQ(trial.side(), ring > 1 ? Side::uring : Side::threads) << ring;
    EXPECT_NEAR(trial.ratio(), ring, 0.1 * ring);
  }
}

TEST(EngineTrial, RatioIsTheGeometricMean) {
  // Returns the ratio after these batches of the ring, each compared with a batch of the threads
  // that takes 1 ms. The first pair is the warm-up and does not count.
  const auto ratio = [](const std::vector<std::uint64_t>& ring_ns) {
    EngineTrial trial;
    std::size_t pair = 0;
    for (int batch = 0; pair < ring_ns.size() && !trial.is_decided(); ++batch) {
      const std::uint64_t ring = batch < 2 ? 1 : ring_ns[pair];
      trial.batch_took(trial.side() == Side::uring ? ring : 1'000'000);
      if (batch >= 2 && trial.is_between_pairs()) ++pair;
    }
    return trial.ratio();
  };
  EXPECT_EQ(EngineTrial().ratio(), 1.0);
  EXPECT_NEAR(ratio({500'000}), 2.0, 1e-5);
  EXPECT_NEAR(ratio({250'000, 1'000'000}), 2.0, 1e-5);
  EXPECT_NEAR(ratio({500'000, 250'000, 125'000}), 4.0, 1e-5);
  EXPECT_NEAR(ratio({500'000, 2'000'000'000}), std::sqrt(2.0 * 0.0005), 1e-6);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint64_t> times;
    double logs = 0;
    for (int pair = 0; pair < 8; ++pair) {
      times.push_back(std::uniform_int_distribution<std::uint64_t>(1'000, 900'000)(random));
      logs += std::log(1e6 / static_cast<double>(times.back()));
    }
    EXPECT_NEAR(ratio(times), std::exp(logs / 8), 1e-5 * std::exp(logs / 8));
  }
  // Even an extreme ratio is finite.
  EXPECT_NEAR(ratio(std::vector<std::uint64_t>(8, 1)), 1e6, 1);
}

TEST(EngineTrial, SingleSpoiledBatchDoesNotDecide) {
  for (int spoiled = 0; spoiled < 16; ++spoiled) {
    EngineTrial trial;
    for (int batch = 0; !trial.is_decided(); ++batch) {
      trial.batch_took(batch == spoiled ? 100'000 : trial.side() == Side::uring ? 50 : 100);
    }
    EXPECT_EQ(trial.side(), Side::uring) << spoiled;
  }
}

TEST(EngineTrial, TieGoesToTheThreads) {
  std::mt19937 random(1);
  constexpr int k_trials = 2000;
  const auto rings = [&](double ring, double noise) {
    int found = 0;
    for (int i = 0; i < k_trials; ++i) found += decide(ring, noise, random) == Side::uring ? 1 : 0;
    return static_cast<double>(found) / k_trials;
  };
  EXPECT_LT(rings(1.0, 0.25), 0.01);
  EXPECT_LT(rings(0.9, 0.25), 0.002);
  EXPECT_EQ(rings(0.6, 0.25), 0);
  EXPECT_GT(rings(1.5, 0.25), 0.80);
}

TEST(EngineTrial, FirstPairDoesNotCount) {
  EngineTrial trial;
  trial.batch_took(1'000'000'000);
  trial.batch_took(1);
  while (!trial.is_decided()) trial.batch_took(trial.side() == Side::uring ? 200 : 100);
  EXPECT_EQ(trial.side(), Side::threads);
  EXPECT_NEAR(trial.ratio(), 0.5, 0.01);
}

std::uint64_t g_now = 0;

// An engine that ends its fetches when the test says so. Each fetch takes the same time on the
// test's clock.
class FakeEngine : public IoEngine {
 public:
  FakeEngine(const char* name, FetchClient& client, std::uint64_t cost)
      : name_(name), client_(client), cost_(cost) {}
  const char* name() const override { return name_; }
  void submit(Fetch& fetch) override {
    if (is_stopped_) return client_.ended(fetch, {});
    waiting_.push_back(&fetch);
    ++taken;
  }
  void set_depth(unsigned) override {}
  void cancel_waiting() override { end_all(Ending::cancelled); }
  void drain() override {}
  unsigned stop(unsigned) override {
    is_stopped_ = true;
    end_all(Ending::cancelled);
    return 0;
  }
  bool run_one(Ending ending = Ending::whole) {
    if (waiting_.empty()) return false;
    Fetch* const fetch = waiting_.front();
    waiting_.pop_front();
    g_now += cost_;
    FetchResult result;
    result.ending = ending;
    client_.ended(*fetch, result);
    return true;
  }
  void end_all(Ending ending) {
    while (run_one(ending)) {
    }
  }
  bool is_idle() const { return waiting_.empty(); }
  unsigned taken = 0;

 private:
  const char* const name_;
  FetchClient& client_;
  const std::uint64_t cost_;
  std::deque<Fetch*> waiting_;
  bool is_stopped_ = false;
};

struct AutoChoice : ::testing::Test {
  Client client;
  FakeEngine *threads = nullptr, *uring = nullptr;
  std::vector<std::unique_ptr<Order>> orders;
  std::unique_ptr<IoEngine> engine;

  void start(std::uint64_t threads_cost, std::uint64_t uring_cost) {
    AutoParts parts;
    const auto maker = [](const char* name, FakeEngine*& keep, std::uint64_t cost) {
      return [name, &keep, cost](FetchClient& of) {
        auto made = std::make_unique<FakeEngine>(name, of, cost);
        keep = made.get();
        return made;
      };
    };
    parts.threads = maker("threads", threads, threads_cost);
    parts.uring = maker("uring", uring, uring_cost);
    parts.now_ns = [] { return g_now; };
    engine = make_auto_engine(parts, {.depth = 16}, client);
    ASSERT_NE(engine, nullptr);
  }
  void submit(int n, std::uint32_t origin = 0) {
    for (int i = 0; i < n; ++i) {
      orders.push_back(std::make_unique<Order>("/x"));
      orders.back()->origin = origin;
      engine->submit(*orders.back());
    }
  }
  void run() {
    while (!threads->is_idle() || !uring->is_idle()) {
      EXPECT_TRUE(threads->is_idle() || uring->is_idle()) << "both at work for one origin";
      threads->run_one();
      uring->run_one();
    }
  }
  void expect_each_ended_once() {
    for (const auto& one : orders) EXPECT_EQ(one->times_ended, 1);
  }
};

TEST_F(AutoChoice, UsesTheFasterEngineForTheRest) {
  for (const bool ring_is_faster : {true, false}) {
    start(ring_is_faster ? 200 : 100, ring_is_faster ? 100 : 200);
    submit(2000);
    run();
    FakeEngine& best = ring_is_faster ? *uring : *threads;
    FakeEngine& other = ring_is_faster ? *threads : *uring;
    EXPECT_EQ(best.taken + other.taken, 2000U);
    // One pair warms up. Then two lost pairs or eight won pairs decide.
    EXPECT_EQ(other.taken, (ring_is_faster ? 9U : 3U) * 64)
        << "the batches of the trial and no more";
    EXPECT_STREQ(engine->name_for(0), ring_is_faster ? "uring" : "threads");
    EXPECT_STREQ(engine->name_for(1), "auto") << "not known yet";
    expect_each_ended_once();
  }
}

TEST_F(AutoChoice, LearnsForEachOriginSeparately) {
  start(100, 200);
  submit(1000, 3);
  run();
  const unsigned before = uring->taken;
  submit(10, 3);
  run();
  EXPECT_EQ(uring->taken, before) << "remembered";
  submit(1000, 4);
  run();
  EXPECT_GT(uring->taken, before) << "another origin has its own trial";
  submit(300, 1'000'000);
  run();
  expect_each_ended_once();
}

TEST_F(AutoChoice, HoldsNoFileBackForever) {
  start(100, 200);
  // A whole batch never runs at once, so the trial learns nothing. Everything is fetched
  // nevertheless.
  for (int i = 1; i < 40; ++i) {
    submit(i % 31 + 1);
    run();
  }
  expect_each_ended_once();
}

TEST_F(AutoChoice, CancelledBatchDoesNotCount) {
  start(100, 100'000);
  for (int i = 0; i < 20; ++i) {
    submit(64);
    engine->cancel_waiting();
  }
  EXPECT_EQ(uring->taken, 0U) << "still at the first batch";
  submit(2000);
  run();
  EXPECT_EQ(uring->taken, 3U * 64);
  expect_each_ended_once();
}

TEST_F(AutoChoice, UsesThreadsIfNoBatchIsEverFilled) {
  start(100, 50);
  for (int i = 0; i < 64; ++i) {
    submit(5);
    run();
  }
  EXPECT_STREQ(engine->name_for(0), "threads");
  expect_each_ended_once();
}

TEST_F(AutoChoice, HangingFileHoldsNoFileBack) {
  start(100, 100);
  submit(500);
  // The last file of the first batch hangs.
  for (int i = 0; i < 63; ++i) threads->run_one();
  g_now += 4'999'999'999;
  engine->look_for_hangs();
  EXPECT_EQ(threads->taken, 64U) << "it may still end";
  g_now += 1;
  engine->look_for_hangs();
  EXPECT_EQ(threads->taken, 500U);
  EXPECT_STREQ(engine->name_for(0), "threads");
  run();
  EXPECT_EQ(uring->taken, 0U);
  expect_each_ended_once();
}

TEST_F(AutoChoice, SlowFilesAreNotTakenForHanging) {
  start(4'000'000'000, 2'000'000'000);
  submit(500);
  while (!threads->is_idle() || !uring->is_idle()) {
    threads->run_one();
    uring->run_one();
    engine->look_for_hangs();
  }
  EXPECT_GT(uring->taken, 0U);
}

// Pacing changes the depth all the time: by one, and by half.
TEST_F(AutoChoice, DecidesWhileTheDepthChanges) {
  start(200, 100);
  for (unsigned i = 0; engine->name_for(0) == std::string("auto"); ++i) {
    ASSERT_LT(i, 1000U);
    engine->set_depth(i % 10 == 9 ? 16 : 32 + i % 3);
    submit(200);
    run();
  }
  EXPECT_STREQ(engine->name_for(0), "uring");
  expect_each_ended_once();
}

TEST_F(AutoChoice, BatchesOfDifferentDepthsAreNotCompared) {
  start(100, 100);
  // The first batch runs at depth 16. When it is over, the second batch begins, at depth 64.
  submit(64);
  engine->set_depth(64);
  run();
  submit(256);
  run();
  EXPECT_EQ(threads->taken, 64U + 256U) << "the pair starts over, with threads";
  EXPECT_EQ(uring->taken, 0U);
  submit(256);
  run();
  EXPECT_EQ(uring->taken, 256U);
  expect_each_ended_once();
}

TEST_F(AutoChoice, StopCancelsFilesHeldBack) {
  start(100, 100);
  submit(500);
  engine->stop(10);
  submit(1);
  expect_each_ended_once();
  for (const auto& one : orders) EXPECT_EQ(one->result.ending, Ending::cancelled);
}

TEST(EngineChoice, EveryChoiceFetches) {
  const tests::TempDir dir;
  const std::string path = dir.write("f", "abc");
  using base::EngineKind;
  for (const EngineKind choice : {EngineKind::automatic, EngineKind::uring, EngineKind::threads}) {
    std::vector<std::unique_ptr<Order>> orders;
    Client client;
    std::string why;
    EngineOptions options{.depth = 8};
    options.stack = 1 << 20;
    const auto engine = make_engine(choice, options, client, why);
    ASSERT_NE(engine, nullptr) << why;
    for (int i = 0; i < 600; ++i)
      engine->submit(*orders.emplace_back(std::make_unique<Order>(path)));
    engine->drain();
    for (const auto& one : orders) {
      EXPECT_EQ(one->times_ended, 1);
      EXPECT_EQ(one->content(), "abc");
    }
    EXPECT_EQ(engine->stop(1000), 0U);
  }
}

}  // namespace
}  // namespace cube::prefetch::testing
