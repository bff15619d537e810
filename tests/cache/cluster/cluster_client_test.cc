// The client against fake servers, each of which follows a script. The time limits are generous,
// because the tests check the client's actions and not its speed.
#include "cache/tier/cluster/cluster_client.h"
#include "cache/tier/cluster/home_server.h"

#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <cstring>
#include <set>
#include <utility>

#include "cache/tier/cluster/server_address.h"
#include "tests/cache/cluster/fake_server.h"
#include "tests/support/child.h"
#include "tests/support/sanitizers.h"
#include "tests/support/temp_dir.h"

namespace cube::cache {
namespace {

TEST(ClusterClient, EachAnswerReachesItsAsker) {
  FakeServer server([](const std::string& line) {
    if (line.find(" N2") == std::string::npos)
      return value(line, "bytes of " + line.substr(3, line.find(' ', 3) - 3));
    return value(line, "",
                 line.find(ClusterKey("t", 1, "won").text()) != std::string::npos ? " W" : " Z");
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
        const std::string_view got(reinterpret_cast<const char*>(answer.bytes().data()),
                                   answer.bytes().size());
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

TEST(ClusterClient, MissDoesNotTripTheCircuitBreaker) {
  FakeServer server([](const std::string& line) {
    return line.starts_with("mg") ? std::string("EN\r\n")
                                  : std::string("SERVER_ERROR out of memory\r\n");
  });
  Running running({server.name()});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(running.get("a"), Outcome::none);
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 0U);
}

// The client waits once for a server that does not answer, and never uses its connection again.
TEST(ClusterClient, StopsAskingAServerThatHangs) {
  FakeServer server([](const std::string&) { return std::string(); });
  Running running({server.name()}, 5 * k_ms);
  // On a busy machine, the thread may fail to send a request in time. This proves nothing about the
  // server.
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  Outcome last = Outcome::late;
  while (last == Outcome::late && base::monotonic_ns() < until) last = running.get("a", 5 * k_ms);
  ASSERT_EQ(last, Outcome::skipped);
  const std::uint64_t began = base::monotonic_ns();
  EXPECT_EQ(running.get("a", k_patience), Outcome::skipped);
  EXPECT_LT(base::monotonic_ns() - began, k_patience / 2) << "it is not waited for";
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 1U);
}

TEST(ClusterClient, HangingServerEndsNoRequestOfAnother) {
  std::atomic<bool> is_held{true}, is_asked{false};
  FakeServer silent([](const std::string&) { return std::string(); });
  FakeServer slow([&](const std::string& line) {
    is_asked = true;
    while (is_held) std::this_thread::yield();
    return value(line, "of the slow one");
  });
  const std::vector<std::string> servers{silent.name(), slow.name()};
  Running running(servers, 20 * k_ms);
  const auto key_of = [&](std::size_t server) {
    int i = 0;
    while (home_of_key(servers, ClusterKey("t", 1, std::to_string(i)).hash()) != server) ++i;
    return std::to_string(i);
  };
  Outcome outcome = Outcome::skipped;
  std::thread asker([&, key = key_of(1)] {
    ClusterClient::Answer answer;
    running.client->get(ClusterKey("t", 1, key), 0, k_patience, answer);
    outcome = answer.outcome();
  });
  while (!is_asked) std::this_thread::yield();
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  while (running.count(base::Counter::cluster_trips) == 0 && base::monotonic_ns() < until)
    running.get(key_of(0), 20 * k_ms);
  EXPECT_TRUE(running.rests(key_of(0)));
  is_held = false;
  asker.join();
  EXPECT_EQ(outcome, Outcome::hit);
}

TEST(ClusterClient, LateAnswerIsDiscarded) {
  std::atomic<bool> is_held{true};
  FakeServer server([&](const std::string& line) {
    while (line.find(ClusterKey("t", 1, "slow").text()) != std::string::npos && is_held)
      std::this_thread::yield();
    return value(line, line.substr(3, line.find(' ', 3) - 3));
  });
  Running running({server.name()});
  EXPECT_EQ(running.get("first"), Outcome::hit);
  EXPECT_EQ(running.get("slow", 2 * k_ms), Outcome::late);
  is_held = false;
  EXPECT_EQ(running.get("next"), Outcome::hit);
  EXPECT_EQ(running.bytes, ClusterKey("t", 1, "next").text());
}

std::string slow_value(const std::string& line) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  return value(line, "x");
}

TEST(ClusterClient, ShortWaitsTripTheBreakerOnlyAfterMoreFailures) {
  FakeServer server(slow_value);
  Running running({server.name()});
  int late = 0;
  // On a busy machine, some of these calls send no request, because the row of the previous request
  // can still be in use.
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  for (; running.count(base::Counter::cluster_trips) == 0 && base::monotonic_ns() < until; ++late)
    EXPECT_NE(running.get("a", 1 * k_ms), Outcome::hit);
  EXPECT_TRUE(running.rests("a"));
  EXPECT_GE(late, 16) << "a quarter of the last 64";
}

TEST(ClusterClient, TrialAnsweredInTimeSucceedsThoughItsAskerGaveUp) {
  FakeServer server(slow_value);
  Running running({server.name()});
  while (running.count(base::Counter::cluster_trips) == 0) running.get("a", 1 * k_ms);
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  while (running.get("a", 10 * k_ms) == Outcome::skipped && base::monotonic_ns() < until)
    std::this_thread::yield();
  // No other request is accepted before the trial is over.
  Outcome next = Outcome::skipped;
  while (next == Outcome::skipped && base::monotonic_ns() < until) next = running.get("a");
  EXPECT_EQ(next, Outcome::hit);
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 1U);
}

TEST(ClusterClient, LateAnswersTripTheBreakerThoughTheyFreeTheRow) {
  std::atomic<bool> is_held{false};
  const std::string slow(ClusterKey("t", 1, "slow").text());
  FakeServer server([&](const std::string& line) {
    while (line.find(slow) != std::string::npos && is_held) std::this_thread::yield();
    return value(line, "x");
  });
  Running running({server.name()});
  EXPECT_EQ(running.get("good"), Outcome::hit);
  // It is enough that a quarter of the last 64 answers is late.
  for (int i = 0; i < 400 && running.count(base::Counter::cluster_trips) == 0; ++i) {
    is_held = true;
    running.get("slow", k_ms);
    // The thread has seen the deadline.
    ASSERT_TRUE(running.has_looked(running.source.looks + 2));
    is_held = false;
    running.get("good");
  }
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 1U);
}

struct Wrong {
  const char* name;
  FakeServer::Script script;
};

TEST(ClusterClient, ConnectInTimeSucceedsThoughItsAskerGaveUp) {
  std::atomic<bool> may_answer{false};
  FakeServer server([&](const std::string& line) -> std::string {
    if (line == "user word") return "";
    if (!line.starts_with("set ")) return value(line, "the bytes");
    while (!may_answer) std::this_thread::yield();
    return "STORED\r\n";
  });
  Running running({server.name()}, k_patience, /*leads=*/false, "user word");
  EXPECT_EQ(running.get("a", k_ms), Outcome::late);
  // The first request still has its row. It would lose the row if the client stopped asking the
  // server.
  EXPECT_EQ(running.get("b", 5 * k_ms), Outcome::late);
  may_answer = true;
  EXPECT_EQ(running.get("c"), Outcome::hit);
  EXPECT_EQ(running.count(base::Counter::cluster_trips), 0U);
  EXPECT_EQ(server.connections(), 1);
}

TEST(ClusterClient, MalformedAnswerEndsTheConnectionWithoutAHit) {
  // This value is larger than the largest value that Running accepts.
  const std::string large((1 << 20) + 1, 'x');
  const Wrong all[] = {
      {"another token", [](const std::string&) { return std::string("VA 1 c1 Offf\r\nx\r\n"); }},
      {"no token", [](const std::string&) { return std::string("VA 1 c1\r\nx\r\n"); }},
      {"no such word", [](const std::string&) { return std::string("WHAT 1 2 3\r\n"); }},
      {"no end after the bytes",
       [](const std::string& line) { return "VA 1 c1 O" + token_of(line) + "\r\nxyz\r\n"; }},
      {"more than there is room for",
       [](const std::string& line) { return "VA 99999999 c1 O" + token_of(line) + "\r\n"; }},
      {"more than is wanted", [&](const std::string& line) { return value(line, large); }},
      {"a number that is none",
       [](const std::string& line) {
         return "VA 18446744073709551615 c1 O" + token_of(line) + "\r\n";
       }},
      {"a line without an end", [](const std::string&) { return std::string(20000, 'V'); }},
      {"an end in the midst", [](const std::string&) { return std::string("close"); }},
      {"an error", [](const std::string&) { return std::string("CLIENT_ERROR what\r\n"); }},
      {"a figure", [](const std::string&) { return std::string("STAT bytes 1\r\n"); }},
      {"the end of figures", [](const std::string&) { return std::string("END\r\n"); }},
      {"a login", [](const std::string&) { return std::string("STORED\r\n"); }},
      {"done, without a token", [](const std::string&) { return std::string("HD\r\n"); }},
      {"done, though a value was asked for",
       [](const std::string& line) { return "HD O" + token_of(line) + "\r\n"; }},
      {"http", [](const std::string&) { return std::string("HTTP/1.1 400 Bad Request\r\n\r\n"); }},
  };
  for (const Wrong& wrong : all) {
    FakeServer server(wrong.script);
    Running running({server.name()});
    const Outcome outcome = running.get("a");
    ASSERT_TRUE(outcome == Outcome::late || outcome == Outcome::none) << wrong.name;
    EXPECT_TRUE(running.rests("a")) << wrong.name;
  }
}

TEST(ClusterClient, UnsolicitedAnswerIsNotTakenForTheNext) {
  FakeServer server(
      [](const std::string& line) { return value(line, "right") + "VA 5 c1 O0\r\nwrong\r\n"; });
  Running running({server.name()});
  for (int i = 0; i < 20; ++i) {
    const Outcome outcome = running.get("a");
    if (outcome == Outcome::hit) {
      EXPECT_EQ(running.bytes, "right");
    }
  }
}

// Both requests use the same row of the table.
TEST(ClusterClient, RepeatedAnswerDoesNotAnswerTheNextRequest) {
  std::string last;
  FakeServer server(
      [&](const std::string& line) { return last.empty() ? last = value(line, "first") : last; });
  Running running({server.name()});
  EXPECT_EQ(running.get("a"), Outcome::hit);
  EXPECT_EQ(running.get("a"), Outcome::late);
  EXPECT_TRUE(running.rests("a"));
}

TEST(ClusterClient, UnsolicitedStartOfALineEndsTheConnection) {
  FakeServer server([&](const std::string& line) { return value(line, "x") + "VA 5 c1"; });
  Running running({server.name()});
  EXPECT_EQ(running.get("a"), Outcome::hit);
  EXPECT_TRUE(running.rests("a"));
}

// A second connection would not help.
TEST(ClusterClient, StopsAskingAServerThatSpeaksFirst) {
  FakeServer server([](const std::string& line) { return value(line, "x"); },
                    "VA 1 c1 O0\r\nx\r\n");
  Running running({server.name()}, 50 * k_ms);
  EXPECT_NE(running.get("a", 50 * k_ms), Outcome::hit);
  EXPECT_TRUE(running.rests("a"));
  EXPECT_LE(server.connections(), 2);
}

TEST(ClusterClient, StopsAskingAServerWithTooManyConnections) {
  FakeServer server([](const std::string&) { return std::string("close"); },
                    "ERROR Too many open connections\r\n");
  Running running({server.name()});
  EXPECT_NE(running.get("a"), Outcome::hit);
  EXPECT_TRUE(running.rests("a"));
}

TEST(ClusterClient, GetFailsIfNoServerListensOrTheNameIsUnknown) {
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

constexpr int k_no_rights = 77;

// Runs `body` in a child whose /etc/hosts has this text, and returns its result.
int run_with_hosts(const std::string& hosts, const std::function<int()>& body) {
  return tests::run_in_child([&] {
    if (unshare(CLONE_NEWNS) != 0) return k_no_rights;
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return k_no_rights;
    if (mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) return k_no_rights;
    return body();
  });
}

TEST(ClusterClient, NameOfAServerThatAnswersIsLookedUpOnce) {
  if (tests::k_tsan) GTEST_SKIP() << "ThreadSanitizer starts no threads in a forked child";
  const tests::TempDir dir;
  const int status = run_with_hosts(dir.write("hosts", "127.0.0.1 named\n"), [] {
    const base::UniqueFd watch(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    CHILD_CHECK(inotify_add_watch(watch.get(), "/etc/hosts", IN_OPEN | IN_CLOSE_NOWRITE) >= 0);
    FakeServer server([](const std::string& line) { return value(line, "x"); });
    Running running({"named" + server.name().substr(server.name().find(':'))});
    CHILD_CHECK(running.get("a") == Outcome::hit);
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t looks = running.source.looks;
      running.client->wake();
      CHILD_CHECK(running.has_looked(looks + 1));
    }
    inotify_event events[16];
    CHILD_CHECK(read(watch.get(), events, sizeof events) == 2 * sizeof(inotify_event));
    return 0;
  });
  if (status == k_no_rights) GTEST_SKIP() << "needs a mount namespace";
  EXPECT_EQ(status, 0);
}

// Other nodes use the server's new address.
TEST(ClusterClient, OffersNothingToTheOldAddressOfAServer) {
  if (tests::k_tsan) GTEST_SKIP() << "ThreadSanitizer starts no threads in a forked child";
  const tests::TempDir dir;
  const std::string hosts = dir.write("hosts", "127.0.0.1 named\n");
  const int status = run_with_hosts(hosts, [&] {
    std::atomic<bool> is_ending{false};
    FakeServer server([&](const std::string& line) -> std::string {
      if (line == "stats") return "END\r\n";
      if (line.starts_with("mg")) return is_ending ? "close" : "EN\r\n";
      return "HD O" + token_of(line) + "\r\n";
    });
    Running running({"named" + server.name().substr(server.name().find(':'))});
    running.stop();
    OneOffer source;
    running.start(&source);
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (source.is_wanted && base::monotonic_ns() < until) std::this_thread::yield();
    CHILD_CHECK(!source.is_wanted);
    CHILD_CHECK(tests::TempDir::write_file(hosts, "127.0.0.2 named\n"));
    is_ending = true;
    CHILD_CHECK(running.get("a") != Outcome::hit);
    // The server's name has been looked up again.
    const auto is_left = [&] { return server.open_connections() == 0; };
    while (!is_left() && base::monotonic_ns() < until) std::this_thread::yield();
    CHILD_CHECK(is_left());
    running.stop();
    return 0;
  });
  if (status == k_no_rights) GTEST_SKIP() << "needs a mount namespace";
  EXPECT_EQ(status, 0);
}

TEST(ClusterClient, AServerThatComesBackIsAskedAgain) {
  auto server =
      std::make_unique<FakeServer>([](const std::string& line) { return value(line, "x"); });
  Running running({server->name()});
  EXPECT_EQ(running.get("a"), Outcome::hit);
  // The client closes its connections, so the next request uses a new connection.
  running.stop();
  running.start();
  EXPECT_EQ(running.get("a"), Outcome::hit);
  EXPECT_TRUE(running.source.has_left);
}

// The thread ends during the trial of a server, and another thread asks again.
TEST(ClusterClient, AnotherTrialFollowsAnUnansweredOne) {
  enum class Does { end, nothing, answer };
  std::atomic<Does> does{Does::end};
  std::atomic<int> asked{0};
  FakeServer server([&](const std::string& line) {
    ++asked;
    return does == Does::end ? "close" : does == Does::nothing ? "" : value(line, "x");
  });
  Running running({server.name()});
  EXPECT_EQ(running.get("a"), Outcome::late);
  ASSERT_TRUE(running.rests("a"));
  does = Does::nothing;
  ASSERT_TRUE(running.is_asked_again("a"));
  std::thread trial([&] { EXPECT_EQ(running.get("a"), Outcome::skipped); });
  while (asked < 2) std::this_thread::yield();
  running.stop();
  trial.join();
  does = Does::answer;
  running.start();
  EXPECT_EQ(running.get("a"), Outcome::hit);
}

// The next three tests use no servers, because the thread does not sleep while it waits for a
// server's address or statistics.
TEST(ClusterClient, LeaderWithoutNewsBacksOff) {
  Running running({});
  running.source.leads = true;
  ASSERT_TRUE(running.has_looked(running.source.looks + 2));
  const std::uint64_t began = base::monotonic_ns(), looks = running.source.looks;
  ASSERT_TRUE(running.has_looked(looks + 6));
  EXPECT_GT(base::monotonic_ns() - began, 400 * k_ms)
      << "40 + 80 + 160 + 250 ms or more, and not 5 times 20";
}

TEST(ClusterClient, NewsReachALeader) {
  Running running({});
  running.source.leads = true;
  int quick = 0;
  // On a busy machine, some answers are still slow.
  for (int i = 0; i < 40 && quick < 3; ++i) {
    // The thread's next pauses are 20, 40, 80 and 160 ms.
    ASSERT_TRUE(running.has_looked(running.source.looks + 4));
    const std::uint64_t began = base::monotonic_ns(), looks = running.source.looks;
    running.client->note_news();
    ASSERT_TRUE(running.has_looked(looks + 1));
    quick += base::monotonic_ns() - began < 100 * k_ms ? 1 : 0;
  }
  EXPECT_GE(quick, 3);
}

TEST(ClusterClient, LeaderHearsOfNewsRightAfterItHasAsked) {
  Running running({});
  std::atomic<int> quick{0};
  std::uint64_t told_ns = 0;
  const std::function<void()> tell = [&] {
    const std::uint64_t now = base::monotonic_ns();
    // The shortest doze takes 20 ms.
    quick += now - std::exchange(told_ns, now) < 20 * k_ms ? 1 : 0;
    running.client->note_news();
  };
  running.source.looked = &tell;
  running.source.leads = true;
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  while (quick < 3 && base::monotonic_ns() < until) std::this_thread::yield();
  running.stop();
  EXPECT_GE(quick, 3);
}

TEST(ClusterClient, ReturnsALeaseThatComesTooLate) {
  std::atomic<bool> is_asked{false}, is_held{true}, is_given_back{false};
  FakeServer server([&](const std::string& line) {
    const bool wants_lease = line.find(" N2") != std::string::npos;
    if (line.starts_with("md") && line.find(" C5 ") != std::string::npos) is_given_back = true;
    if (!line.starts_with("mg")) return "HD O" + token_of(line) + "\r\n";
    if (wants_lease) is_asked = true;
    while (wants_lease && is_held) std::this_thread::yield();
    return value(line, "", wants_lease ? " W" : "");
  });
  Running running({server.name()});
  EXPECT_EQ(running.get("first"), Outcome::taken);
  // The shortest of these time limits can be over before the request is sent.
  while (!is_asked) EXPECT_EQ(running.get("slow", 50 * k_ms, 2), Outcome::late);
  is_held = false;
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  while (!is_given_back && base::monotonic_ns() < until) std::this_thread::yield();
  EXPECT_TRUE(is_given_back);
}

// A handler forks while its thread reads an answer.
TEST(ClusterClient, ForkedChildCanReadAnAnswerToItsEnd) {
  const std::string bytes(300'000, 'x');
  FakeServer server([&](const std::string& line) { return value(line, bytes); });
  Running running({server.name()});
  ClusterClient::Answer answer;
  running.client->get(ClusterKey("t", 1, "a"), 0, k_patience, answer);
  ASSERT_EQ(answer.outcome(), Outcome::hit);
  const pid_t child = fork();
  if (child == 0)
    _exit(std::memcmp(answer.bytes().data(), bytes.data(), bytes.size()) == 0 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Each row keeps a buffer for values.
TEST(ClusterClient, UsesOneRowForOneThreadAtATime) {
  std::set<std::uint64_t> rows;
  FakeServer server([&](const std::string& line) {
    rows.insert(std::stoull(token_of(line), nullptr, 16) & UINT32_MAX);
    return value(line, "x");
  });
  Running running({server.name()});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(running.get(std::to_string(i)), Outcome::hit);
  running.stop();
  EXPECT_EQ(rows.size(), 1U);
}

TEST(ClusterClient, RequestsBeyondTheRowsAreSkippedWithoutWaiting) {
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

TEST(ClusterClient, LeaderReportsOnEachServer) {
  FakeServer server([](const std::string& line) {
    return line == "stats"
               ? "STAT limit_maxbytes 1000\r\nSTAT bytes 70\r\nSTAT curr_items 3\r\nEND\r\n"
               : value(line, "x");
  });
  Running running({server.name(), "no-such-host:11211"}, k_patience, /*leads=*/true);
  running.rows[2].told_ns = 1;
  const base::ServerRow &row = running.rows[0], &nameless = running.rows[1];
  const std::uint64_t until = base::monotonic_ns() + k_patience;
  while (row.entries != 3 && base::monotonic_ns() < until) std::this_thread::yield();
  EXPECT_EQ(row.name_text(), server.name());
  EXPECT_EQ(std::tuple(row.capacity.load(), row.used.load(), row.entries.load()),
            std::tuple(1000, 70, 3));
  EXPECT_EQ(std::tuple(row.has_address.load(), row.rests_until_ns.load(), row.is_full.load()),
            std::tuple(1, 0, 0));
  EXPECT_GT(row.answered_ns, 0);
  EXPECT_EQ(nameless.name_text(), "no-such-host:11211");
  EXPECT_EQ(std::tuple(nameless.has_address.load(), nameless.answered_ns.load()), std::tuple(0, 0));
  // Another process had a longer list.
  EXPECT_EQ(running.rows[2].told_ns, 0);
}

TEST(ServerRow, TruncatesALongName) {
  base::ServerRow row{};
  row.set_name(std::string(300, 'x'));
  EXPECT_EQ(row.name_text(), std::string(8 * base::ServerRow::k_name_words - 1, 'x'));
}

}  // namespace
}  // namespace cube::cache
