// Offers: the query that precedes the bytes, and the times at which offers may use a CPU.
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "cache/tier/cluster/helper_thread.h"
#include "cache/tier/cluster/idle_gate.h"
#include "cache/tier/shared/cluster_offers.h"
#include "cache/tier/shared/cluster_path_rights.h"
#include "tests/cache/cluster/fake_server.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_region.h"

namespace cube::cache {
namespace {

// A leader that offers the same bytes under a new name each time.
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

TEST(ClusterOffer, SendsWithoutALookIfNoRecentRecordWasThere) {
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

bool is_replacement(const std::string& line) { return line.find(" C") < line.find("\r\n"); }

// The script decides how the first 10 sends of a record end. Returns for each send whether it
// replaces a lease.
std::vector<bool> sendings_of_one_offer(std::uint64_t lease_cas, const FakeServer::Script& script) {
  std::vector<bool> sendings;
  bool was_put_off = true;
  // A busy machine may postpone an offer, which then starts over.
  for (int i = 0; i < 3 && was_put_off; ++i) {
    sendings.clear();
    FakeServer server([&](const std::string& line) -> std::string {
      if (line == "stats") return "END\r\n";
      if (!line.starts_with("ms")) return script(line);
      sendings.push_back(is_replacement(line));
      return sendings.size() < 10 ? script(line) : "HD O" + token_of(line) + "\r\n";
    });
    Running running({server.name()});
    running.stop();
    OneOffer source;
    source.lease_cas = lease_cas;
    running.start(&source);
    const auto is_under_way = [&] { return source.is_wanted && !source.was_put_off; };
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (is_under_way() && base::monotonic_ns() < until) std::this_thread::yield();
    running.stop();
    was_put_off = source.was_put_off;
  }
  EXPECT_FALSE(was_put_off);
  return sendings;
}

TEST(ClusterOffer, RecordThatKeepsVanishingIsSentTwice) {
  const auto sendings = sendings_of_one_offer(0, [](const std::string& line) {
    if (line.starts_with("mg")) return std::string("EN\r\n");
    return "NS O" + token_of(line) + "\r\n";
  });
  EXPECT_EQ(sendings, (std::vector<bool>{false, false}));
}

TEST(ClusterOffer, RecordIsAddedIfItsLeaseHasRunOut) {
  const auto sendings = sendings_of_one_offer(7, [](const std::string& line) {
    const std::string word = is_replacement(line) ? "NF" : "HD";
    return word + " O" + token_of(line) + "\r\n";
  });
  EXPECT_EQ(sendings, (std::vector<bool>{true, false}));
}

TEST(ClusterOffer, FullServerGetsNoOffersForAMinute) {
  const std::string full = "SERVER_ERROR out of memory storing object\r\n";
  // The second answer also ends the connection. If only the connection ended, the client would
  // pause for just one second.
  for (const std::string& answer : {full, full + "and more"}) {
    std::atomic<std::uint64_t> refused_ns{0};
    FakeServer server([&](const std::string& line) -> std::string {
      if (line == "stats") return "END\r\n";
      if (line.starts_with("mg")) return "EN\r\n";
      refused_ns = base::monotonic_ns();
      return answer;
    });
    Running running({server.name()});
    running.stop();
    OneOffer source;
    running.start(&source);
    const base::ServerRow& row = running.rows[0];
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (row.is_full == 0 && base::monotonic_ns() < until) std::this_thread::yield();
    ASSERT_EQ(row.is_full, 1);
    running.stop();
    EXPECT_GE(row.no_offers_until_ns, refused_ns + 59'000 * k_ms) << answer;
  }
}

// A node that offers all records of its region. No thread sends the offers.
struct OfferingNode {
  const tests::TestRegion region;
  RamTier ram{*region};
  const ClusterPaths paths{config()};
  ClusterClient client{client_options()};
  ClusterOffers offers{ram, paths, client, options()};

  base::Config config() const {
    base::Config made = tests::config_for(region.options);
    made.prefixes = {"/mnt/data"};
    return made;
  }
  static ClusterClientOptions client_options() {
    ClusterClientOptions made;
    made.servers = {"127.0.0.1:1"};
    return made;
  }
  static ClusterOffers::Options options() {
    ClusterOffers::Options made;
    made.with_private = true;
    made.most_bytes = 1 << 20;
    return made;
  }
};

TEST(ClusterOffers, NextLookFindsARecordConfirmedAfterTheLast) {
  OfferingNode node;
  auto& [region, ram, paths, client, offers] = node;
  const std::string path = "/mnt/data/f", content = "content";
  auto room = ram.reserve(path.size(), content.size());
  ASSERT_TRUE(room);
  content.copy(reinterpret_cast<char*>(room->data()), content.size());
  auto pin = ram.publish(*room, tests::content_for(path, content.size()));
  ASSERT_TRUE(pin);
  ClusterOffer offer;
  // One walk over the region may end before it has visited all segments.
  const auto is_found = [&](std::uint64_t now_ns) {
    for (std::uint32_t i = 0; i <= region->layout().segment_count; ++i) {
      if (offers.next(offer, now_ns, /*only_leased=*/false)) return true;
    }
    return false;
  };
  const std::uint64_t now = base::monotonic_ns();
  EXPECT_FALSE(is_found(now));
  ASSERT_TRUE(ram.confirm(std::move(*room), *pin));
  EXPECT_TRUE(is_found(now + 1'000 * k_ms));
  offers.end_offer(offer, OfferEnd::accepted);
  offers.leave();
}

TEST(ClusterOffers, LeaveEndsThePinsOfPushedRecords) {
  OfferingNode node;
  const Region& region = *node.region;
  {
    const auto pin = tests::put(node.ram, "/mnt/data/f", "content");
    ASSERT_TRUE(pin);
    ASSERT_TRUE(node.offers.push(*pin, /*lease_cas=*/1));
  }
  EXPECT_EQ(pins_of(region, region.own_slot()), 1U);
  node.offers.leave();
  EXPECT_EQ(pins_of(region, region.own_slot()), 0U);
}

// Replaces the helper thread: it either never runs or answers immediately.
std::atomic<bool> g_helpers_run{false};
std::function<void()> g_held;
bool start_helper(void (*body)(void*), void* argument) {
  if (g_helpers_run)
    std::thread(body, argument).detach();
  else
    g_held = [=] { body(argument); };
  return true;
}

// The highest niceness of this process's threads.
int highest_niceness() {
  int highest = -20;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
    highest = std::max(
        highest, getpriority(PRIO_PROCESS, static_cast<id_t>(std::stoi(thread.path().filename()))));
  return highest;
}

class IdleGateTest : public testing::Test {
 protected:
  IdleGateTest() : former_(g_start_helper_thread.exchange(nullptr)) {}
  ~IdleGateTest() override { g_start_helper_thread = former_; }
  // A helper may still wake this client when the test is over.
  static inline Wakeup client_;

 private:
  const StartHelperThread former_;
};

class ClusterLooksTest : public IdleGateTest {};

TEST_F(ClusterLooksTest, ForgetsTheRightsOfADirectoryAfterAMinute) {
  g_start_helper_thread = start_helper;
  g_helpers_run = true;
  const tests::TempDir directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
  const auto of = std::make_unique<ClusterClient>(ClusterClientOptions{});
  ClusterPathRights looks(*of);
  const auto access_at = [&](std::uint64_t now_ns) {
    auto access = ClusterPathRights::Access::unknown;
    while ((access = looks.access_to(directory.path(), now_ns)) ==
           ClusterPathRights::Access::unknown)
      std::this_thread::yield();
    return access;
  };
  const std::uint64_t now = base::monotonic_ns();
  EXPECT_EQ(access_at(now), ClusterPathRights::Access::all);
  ASSERT_EQ(chmod(directory.path().c_str(), 0700), 0);
  EXPECT_EQ(access_at(now + 59'000 * k_ms), ClusterPathRights::Access::all);
  EXPECT_EQ(access_at(now + 61'000 * k_ms), ClusterPathRights::Access::some);
}

TEST_F(IdleGateTest, IsOpenWithoutAThread) {
  IdleGate gate(client_);
  gate.shut(k_ms);
  EXPECT_TRUE(gate.is_open(k_ms));
}

TEST_F(IdleGateTest, IsShutForALimitedTimeWhileNoProcessorIsIdle) {
  g_start_helper_thread = start_helper;
  g_helpers_run = false;
  {
    IdleGate gate(client_);
    EXPECT_TRUE(gate.is_open(k_ms));
    gate.shut(k_ms);
    EXPECT_FALSE(gate.is_open(k_ms));
    const std::uint64_t end = gate.opens_ns();
    EXPECT_LE(end, k_ms + 100 * k_ms);
    EXPECT_FALSE(gate.is_open(end - 1));
    EXPECT_TRUE(gate.is_open(end));
  }
  // The thread runs only when no query is pending any more, and then ends.
  ASSERT_TRUE(g_held);
  std::exchange(g_held, nullptr)();
}

// The desk's client has nothing to do, and would check again only after 250 ms.
TEST_F(IdleGateTest, DeskThatIsDoneWakesTheClient) {
  struct Desk final : HelperDesk {
    Desk(Wakeup& client, std::atomic<bool>& gone) : HelperDesk(client), is_gone_(gone) {}
    ~Desk() override { is_gone_ = true; }
    void work() override {}
    std::atomic<bool>& is_gone_;
  };
  g_start_helper_thread = start_helper;
  g_helpers_run = true;
  Running running({});
  std::atomic<bool> is_gone{false};
  auto* const desk = new Desk(running.client->wakeup(), is_gone);
  ASSERT_TRUE(desk->start());
  std::uint64_t asked_ns = 0;
  int looks = 0;
  std::atomic<int> quick{0};
  std::atomic<bool> is_over{false};
  const std::function<void()> ask = [&] {
    const std::uint64_t now = base::monotonic_ns();
    // On a busy machine, some answers are still slow.
    quick += now - std::exchange(asked_ns, now) < 125 * k_ms ? 1 : 0;
    is_over = ++looks >= 40 || quick >= 3;
    if (desk->is_done()) desk->take();
    if (desk->is_idle()) desk->ask();
  };
  running.source.looked = &ask;
  running.client->wake();
  while (!is_over) std::this_thread::yield();
  running.stop();
  desk->end();
  EXPECT_GE(quick, 3);
  // The client must live until the other thread has ended, because that thread may wake it.
  while (!is_gone) std::this_thread::yield();
}

TEST_F(IdleGateTest, AnAnswerOpensIt) {
  g_start_helper_thread = start_helper;
  g_helpers_run = true;
  // The client outlives the thread, which wakes it.
  static std::unique_ptr<IdleGate> gate;
  gate = std::make_unique<IdleGate>(client_);
  bool has_opened = false;
  // On a busy machine, an answer may arrive only after the gate has opened.
  for (int i = 0; i < 1000 && !has_opened; ++i) {
    const std::uint64_t now = base::monotonic_ns();
    gate->shut(now);
    const std::uint64_t last = gate->opens_ns();
    ASSERT_FALSE(last == now) << "it has a thread";
    for (std::uint64_t then = now; !has_opened && then < last; then = base::monotonic_ns())
      has_opened = gate->is_open(then);
  }
  EXPECT_TRUE(has_opened);
  // A program ends only when its last thread has had a CPU on which to end.
  EXPECT_EQ(highest_niceness(), std::max(15, getpriority(PRIO_PROCESS, 0)));
  gate.reset();
}

}  // namespace
}  // namespace cube::cache
