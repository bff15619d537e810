// The client against servers of the test, each of which answers as its script says. Times are generous: what is checked is what
// the client does, not when.
#include "cache/tier/cluster/cluster_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "cache/base/clock.h"
#include "cache/tier/cluster/server_address.h"

namespace cube::cache {
namespace {

using Outcome = ClusterClient::Outcome;
constexpr std::uint64_t k_ms = 1'000'000, k_patience = 20'000 * k_ms;

// Takes connections on loopback, and gives each line that comes to the script. An empty answer says nothing; "close" ends the
// connection.
class FakeServer {
 public:
  using Script = std::function<std::string(const std::string& line)>;
  // `greeting`: said at once to whoever connects.
  explicit FakeServer(Script script, std::string greeting = {}) : script_(std::move(script)), greeting_(std::move(greeting)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    is_over_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string name() const { return "127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }

 private:
  void serve() {
    std::vector<std::thread> talks;
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      ++connections_;
      talks.emplace_back([this, fd] { talk(fd); });
    }
    for (auto& talk : talks) talk.join();
  }
  void talk(int fd) {
    const timeval often{.tv_sec = 0, .tv_usec = 20'000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &often, sizeof often);
    if (!greeting_.empty()) send(fd, greeting_.data(), greeting_.size(), MSG_NOSIGNAL);
    std::string text;
    char buffer[4096];
    while (!is_over_) {
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n == 0) break;
      if (n < 0) continue;
      text.append(buffer, static_cast<std::size_t>(n));
      bool is_closed = false;
      for (std::size_t end; !is_closed && (end = text.find("\r\n")) != std::string::npos; text.erase(0, end + 2)) {
        const std::string answer = script_(text.substr(0, end));
        is_closed = answer == "close";
        if (!is_closed) send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
      }
      if (is_closed) break;
    }
    close(fd);
  }

  Script script_;
  std::string greeting_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> is_over_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

// "mg KEY v c Oabc N2" -> "abc".
std::string token_of(const std::string& line) {
  const std::size_t at = line.find(" O") + 2;
  return line.substr(at, line.find(' ', at) - at);
}
std::string value(const std::string& line, const std::string& bytes, const std::string& flags = "") {
  return "VA " + std::to_string(bytes.size()) + " c5 O" + token_of(line) + flags + "\r\n" + bytes + "\r\n";
}

class NoOffers final : public OfferSource {
 public:
  bool next(ClusterOffer&, std::uint64_t) override { return false; }
  void end_offer(ClusterOffer&) override {}
  bool is_leader() const override { return false; }
  void note_figures(const ClusterFigures&) override {}
  void leave() override { has_left = true; }
  std::atomic<bool> has_left{false};
};

class Running {
 public:
  explicit Running(std::vector<std::string> servers, std::uint64_t deadline_ns = k_patience) {
    ClusterClientOptions options;
    budgets = std::vector<std::atomic<std::uint64_t>>(servers.size());
    options.servers = std::move(servers);
    options.deadline_ns = deadline_ns;
    options.most_bytes = 1 << 20;
    options.budgets = budgets.data();
    options.stats = &stats;
    client = std::make_unique<ClusterClient>(std::move(options));
    start();
  }
  ~Running() { stop(); }
  void start() {
    ASSERT_TRUE(client->claim_start());
    thread = std::thread([this] { client->run(source); });
  }
  void stop() {
    if (!thread.joinable()) return;
    EXPECT_TRUE(client->stop(k_patience));
    thread.join();
  }
  Outcome get(const std::string& path, std::uint64_t at_most_ns = k_patience, unsigned lease = 0) {
    ClusterClient::Answer answer;
    client->get(ClusterKey("t", 1, path), lease, at_most_ns, answer);
    if (answer.outcome() == Outcome::hit)
      bytes.assign(reinterpret_cast<const char*>(answer.bytes().data()), answer.bytes().size());
    return answer.outcome();
  }
  std::uint64_t count(base::Counter counter) const { return stats.counters[static_cast<std::size_t>(counter)]; }
  // The server is left alone.
  bool rests(const std::string& path) {
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (client->is_asked(ClusterKey("t", 1, path)) && base::monotonic_ns() < until) std::this_thread::yield();
    return !client->is_asked(ClusterKey("t", 1, path));
  }

  base::Stats stats{};
  std::vector<std::atomic<std::uint64_t>> budgets;
  std::unique_ptr<ClusterClient> client;
  NoOffers source;
  std::thread thread;
  std::string bytes;
};

TEST(ClusterClient, AnswersComeToWhoHasAsked) {
  FakeServer server([](const std::string& line) {
    if (line.find(" N2") == std::string::npos) return value(line, "bytes of " + line.substr(3, line.find(' ', 3) - 3));
    return value(line, "", line.find(ClusterKey("t", 1, "won").text()) != std::string::npos ? " W" : " Z");
  });
  Running running({server.name()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&running, t] {
      for (int i = 0; i < 100; ++i) {
        ClusterClient::Answer answer;
        const ClusterKey key("t", 1, std::to_string(t) + "/" + std::to_string(i));
        running.client->get(key, 0, k_patience, answer);
        ASSERT_EQ(answer.outcome(), Outcome::hit);
        const std::string_view got(reinterpret_cast<const char*>(answer.bytes().data()), answer.bytes().size());
        ASSERT_EQ(got, "bytes of " + std::string(key.text()));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(running.get("won", k_patience, 2), Outcome::won);
  EXPECT_EQ(running.get("taken", k_patience, 2), Outcome::taken);
  EXPECT_EQ(server.connections(), 1);
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 0U);
}

TEST(ClusterClient, AMissIsAMissAndNoTrouble) {
  FakeServer server([](const std::string& line) {
    return line.starts_with("mg") ? std::string("EN\r\n") : std::string("SERVER_ERROR out of memory\r\n");
  });
  Running running({server.name()});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(running.get("a"), Outcome::none);
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 0U);
}

// A server that says nothing is waited for once, and its connection is never used again.
TEST(ClusterClient, AServerThatHangsIsLeftAlone) {
  FakeServer server([](const std::string&) { return std::string(); });
  Running running({server.name()}, 5 * k_ms);
  EXPECT_EQ(running.get("a", 5 * k_ms), Outcome::late);
  ASSERT_TRUE(running.rests("a"));
  const std::uint64_t began = base::monotonic_ns();
  EXPECT_EQ(running.get("a", k_patience), Outcome::skipped);
  EXPECT_LT(base::monotonic_ns() - began, k_patience / 2) << "it is not waited for";
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 1U);
}

TEST(ClusterClient, ALateAnswerGoesToNobody) {
  std::atomic<bool> is_held{true};
  FakeServer server([&](const std::string& line) {
    while (line.find(ClusterKey("t", 1, "slow").text()) != std::string::npos && is_held) std::this_thread::yield();
    return value(line, line.substr(3, line.find(' ', 3) - 3));
  });
  Running running({server.name()});
  EXPECT_EQ(running.get("first"), Outcome::hit);
  EXPECT_EQ(running.get("slow", 2 * k_ms), Outcome::late);
  is_held = false;
  EXPECT_EQ(running.get("next"), Outcome::hit);
  EXPECT_EQ(running.bytes, ClusterKey("t", 1, "next").text());
}

TEST(ClusterClient, ThreeLateAnswersAreEnough) {
  FakeServer server([](const std::string& line) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return value(line, "x");
  });
  Running running({server.name()});
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(running.get("a", 1 * k_ms), Outcome::hit);
    EXPECT_NE(running.get("b", 1 * k_ms), Outcome::hit);
  }
  EXPECT_TRUE(running.rests("a"));
}

struct Wrong {
  const char* name;
  FakeServer::Script script;
};

TEST(ClusterClient, AWrongAnswerEndsTheConnectionAndIsNoHit) {
  const Wrong all[] = {
      {"another token", [](const std::string&) { return std::string("VA 1 c1 Offf\r\nx\r\n"); }},
      {"no token", [](const std::string&) { return std::string("VA 1 c1\r\nx\r\n"); }},
      {"no such word", [](const std::string&) { return std::string("WHAT 1 2 3\r\n"); }},
      {"no end behind the bytes", [](const std::string& line) { return "VA 1 c1 O" + token_of(line) + "\r\nxyz\r\n"; }},
      {"more than there is room for", [](const std::string& line) { return "VA 99999999 c1 O" + token_of(line) + "\r\n"; }},
      {"a number that is none", [](const std::string& line) { return "VA 18446744073709551615 c1 O" + token_of(line) + "\r\n"; }},
      {"a line without an end", [](const std::string&) { return std::string(20000, 'V'); }},
      {"an end in the midst", [](const std::string&) { return std::string("close"); }},
      {"an error", [](const std::string&) { return std::string("CLIENT_ERROR what\r\n"); }},
      {"http", [](const std::string&) { return std::string("HTTP/1.1 400 Bad Request\r\n\r\n"); }},
  };
  for (const Wrong& wrong : all) {
    FakeServer server(wrong.script);
    Running running({server.name()});
    const Outcome outcome = running.get("a");
    EXPECT_TRUE(outcome == Outcome::late || outcome == Outcome::none) << wrong.name;
    EXPECT_TRUE(running.rests("a")) << wrong.name;
  }
}

TEST(ClusterClient, AnAnswerThatNobodyAskedForIsNotTakenForTheNext) {
  FakeServer server([](const std::string& line) { return value(line, "right") + "VA 5 c1 O0\r\nwrong\r\n"; });
  Running running({server.name()});
  for (int i = 0; i < 20; ++i) {
    const Outcome outcome = running.get("a");
    if (outcome == Outcome::hit) {
      EXPECT_EQ(running.bytes, "right");
    }
  }
}

TEST(ClusterClient, TooManyConnectionsLeaveTheServerAlone) {
  FakeServer server([](const std::string&) { return std::string("close"); }, "ERROR Too many open connections\r\n");
  Running running({server.name()});
  EXPECT_NE(running.get("a"), Outcome::hit);
  EXPECT_TRUE(running.rests("a"));
}

TEST(ClusterClient, NobodyListensOrTheNameIsUnknown) {
  std::string gone;
  {
    gone = FakeServer([](const std::string&) { return std::string(); }).name();
  }
  Running running({gone});
  EXPECT_NE(running.get("a"), Outcome::hit);
  EXPECT_TRUE(running.rests("a"));
  Running nameless({"no-such-host.invalid:11211"});
  EXPECT_EQ(nameless.get("a"), Outcome::skipped);
}

TEST(ClusterClient, AServerThatComesBackIsAskedAgain) {
  auto server = std::make_unique<FakeServer>([](const std::string& line) { return value(line, "x"); });
  Running running({server->name()});
  EXPECT_EQ(running.get("a"), Outcome::hit);
  // It closes what it has: the next question gets a new connection.
  running.stop();
  running.start();
  EXPECT_EQ(running.get("a"), Outcome::hit);
  EXPECT_TRUE(running.source.has_left);
}

TEST(ClusterClient, MoreAskersThanRowsAreNotKeptWaiting) {
  std::atomic<bool> is_held{true};
  FakeServer server([&](const std::string& line) {
    while (is_held) std::this_thread::yield();
    return value(line, "x");
  });
  Running running({server.name()});
  std::vector<std::thread> threads;
  std::atomic<int> hits{0}, skipped{0};
  for (int t = 0; t < 40; ++t) {
    threads.emplace_back([&, t] {
      ClusterClient::Answer answer;
      running.client->get(ClusterKey("t", 1, std::to_string(t)), 0, k_patience, answer);
      const Outcome outcome = answer.outcome();
      hits += outcome == Outcome::hit ? 1 : 0;
      skipped += outcome == Outcome::skipped ? 1 : 0;
    });
  }
  while (skipped < 8) std::this_thread::yield();
  is_held = false;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(hits, 32);
  EXPECT_EQ(skipped, 8);
}

}  // namespace
}  // namespace cube::cache
