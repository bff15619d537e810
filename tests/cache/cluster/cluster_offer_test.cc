// Offers: what is asked before bytes are sent, and when they may take a processor.
#include <sys/resource.h>

#include <filesystem>

#include "cache/tier/cluster/helper_thread.h"
#include "cache/tier/cluster/idle_gate.h"
#include "tests/cache/cluster/fake_server.h"

namespace cube::cache {
namespace {

// Leads, and offers the same bytes by ever new names.
class ManyOffers final : public OfferSource {
 public:
  bool next(ClusterOffer& offer, std::uint64_t, bool) override {
    if (left == 0) return false;
    offer.key = ClusterKey("t", 1, std::to_string(left));
    offer.parts[0] = std::as_bytes(std::span(bytes));
    offer.parts[1] = offer.parts[2] = {};
    offer.lease_cas = 0;
    return true;
  }
  void end_offer(ClusterOffer&, OfferEnd end) override {
    if (end == OfferEnd::accepted) --left;
  }
  bool is_leader() const override { return true; }
  void note_figures(const ClusterFigures&) override {}
  void leave() override {}
  std::string bytes = "the bytes";
  std::atomic<int> left{0};
};

bool ends(const ManyOffers& source) {
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  while (source.left != 0 && base::monotonic_ns() < until) std::this_thread::yield();
  return source.left == 0;
}

TEST(ClusterOffer, NothingIsAskedWhereNoneOfTheLastWasThere) {
  std::atomic<int> looks{0}, sendings{0};
  std::atomic<bool> is_there{false};
  FakeServer server([&](const std::string& line) -> std::string {
    if (line == "stats") return "END\r\n";
    const bool is_look = line.starts_with("mg");
    ++(is_look ? looks : sendings);
    if (is_there) return (is_look ? "HD c5 s70 O" : "NS O") + token_of(line) + "\r\n";
    return is_look ? "EN\r\n" : "HD O" + token_of(line) + "\r\n";
  });
  Running running({server.name()});
  EXPECT_EQ(running.get("a"), Outcome::none);
  running.stop();
  looks = 0;
  const int connections = server.connections();
  ManyOffers source;
  source.left = 40;
  running.start(&source);
  ASSERT_TRUE(ends(source));
  EXPECT_EQ(looks, 32);
  EXPECT_EQ(sendings, 40);
  is_there = true;
  source.left = 40;
  ASSERT_TRUE(ends(source));
  EXPECT_EQ(looks, 32 + 40) << "the first is sent, refused and looked at; the others are looked at";
  EXPECT_EQ(sendings, 40 + 1);
  running.stop();
  EXPECT_LE(server.connections() - connections, 2) << "demand and offers; no answer has ended one";
}

// A thread that gets no processor, or answers at once.
std::atomic<bool> g_helpers_run{false};
std::function<void()> g_held;
bool start_helper(void (*body)(void*), void* argument) {
  if (g_helpers_run)
    std::thread(body, argument).detach();
  else
    g_held = [=] { body(argument); };
  return true;
}

// Of the threads of this process.
int highest_niceness() {
  int highest = -20;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    highest = std::max(highest, getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(thread.path().filename()))));
  return highest;
}

class IdleGateTest : public testing::Test {
 protected:
  IdleGateTest() : former_(g_start_helper_thread.exchange(nullptr)) {}
  ~IdleGateTest() override { g_start_helper_thread = former_; }
  static std::unique_ptr<ClusterClient> client() { return std::make_unique<ClusterClient>(ClusterClientOptions{}); }

 private:
  const StartHelperThread former_;
};

TEST_F(IdleGateTest, IsOpenWithoutAThread) {
  const auto of = client();
  IdleGate gate(*of);
  gate.shut(k_ms);
  EXPECT_TRUE(gate.is_open(k_ms));
}

TEST_F(IdleGateTest, IsShutWhileNoProcessorIsIdleButNotForEver) {
  g_start_helper_thread = start_helper;
  g_helpers_run = false;
  const auto of = client();
  {
    IdleGate gate(*of);
    EXPECT_TRUE(gate.is_open(k_ms));
    gate.shut(k_ms);
    EXPECT_FALSE(gate.is_open(k_ms));
    const std::uint64_t end = gate.opens_ns();
    EXPECT_LE(end, k_ms + 100 * k_ms);
    EXPECT_FALSE(gate.is_open(end - 1));
    EXPECT_TRUE(gate.is_open(end));
  }
  // The thread gets a processor when nobody asks any more, and ends.
  ASSERT_TRUE(g_held);
  std::exchange(g_held, nullptr)();
}

TEST_F(IdleGateTest, AnAnswerOpensIt) {
  g_start_helper_thread = start_helper;
  g_helpers_run = true;
  const auto of = client();
  // The client outlives the thread, which wakes it.
  static std::unique_ptr<IdleGate> gate;
  gate = std::make_unique<IdleGate>(*of);
  bool has_opened = false;
  // On a busy machine an answer may take longer than the gate is shut.
  for (int i = 0; i < 1000 && !has_opened; ++i) {
    const std::uint64_t now = base::monotonic_ns();
    gate->shut(now);
    const std::uint64_t last = gate->opens_ns();
    ASSERT_FALSE(last == now) << "it has a thread";
    for (std::uint64_t then = now; !has_opened && then < last; then = base::monotonic_ns()) has_opened = gate->is_open(then);
  }
  EXPECT_TRUE(has_opened);
  // A program ends when the last of its threads has got a processor for that.
  EXPECT_EQ(highest_niceness(), std::max(15, getpriority(PRIO_PROCESS, 0)));
  gate.reset();
}

}  // namespace
}  // namespace cube::cache
