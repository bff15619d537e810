// A program that asks a server is stopped between two instructions. At that moment, either it
// leaves the request by a jump or the answer arrives. The client's thread continues.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <csetjmp>
#include <csignal>
#include <set>

#include "tests/cache/cluster/fake_server.h"
#include "tests/support/sanitizers.h"
#include "tests/support/tracee.h"

namespace cube::cache {
namespace {

using tests::Tracee;

constexpr std::uint64_t k_short = 2 * k_ms;

sigjmp_buf g_left_question;

// Asks like a fetch, always at the same depth of the stack.
[[gnu::noinline]] Outcome ask(ClusterClient& client, const ClusterKey& key,
                              std::uint64_t at_most_ns, unsigned lease = 0) {
  ClusterClient::Answer answer;
  client.get(key, lease, at_most_ns, answer);
  const std::string_view text = key.text();
  const bool is_right = answer.outcome() != Outcome::hit ||
                        std::string_view(reinterpret_cast<const char*>(answer.bytes().data()),
                                         answer.bytes().size()) == text;
  return is_right ? answer.outcome() : Outcome::skipped;
}

std::string key_in(const std::string& line) { return line.substr(3, line.find(' ', 3) - 3); }

// A process that asks a server. Its signals never reach the client's thread.
struct AskingProcess {
  sigset_t all, before;
  Running running;
  explicit AskingProcess(const std::string& server) : running({(block(), server)}) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

 private:
  void block() {
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
  }
};

TEST(ClusterSteps, RowIsReusableAfterAJumpOutOfARequestAtAnyInstruction) {
  if (tests::k_tsan) GTEST_SKIP() << "ThreadSanitizer delivers signals later than the kernel";
  if (tests::k_asan) GTEST_SKIP() << "AddressSanitizer has larger frames that keep old words";
  FakeServer server([](const std::string& line) { return value(line, key_in(line)); });
  Tracee child([&] {
    AskingProcess process(server.name());
    ClusterClient& client = *process.running.client;
    const ClusterKey key("t", 1, "left"), next("t", 1, "next");
    signal(SIGUSR1, [](int) { siglongjmp(g_left_question, 1); });
    while (true) {
      // There are 32 rows.
      CHILD_CHECK(ask(client, next, k_patience) == Outcome::hit);
      if (sigsetjmp(g_left_question, 1) == 0) {
        raise(SIGSTOP);
        CHILD_CHECK(ask(client, key, k_patience) == Outcome::hit);
        raise(SIGSTOP);
      }
    }
  });
  int jumps = 0;
  bool is_whole = false;
  for (long steps = 0; !is_whole && steps < 6000; steps += 29) {
    ASSERT_TRUE(child.to_stop()) << "after " << jumps << " jumps, the last at step " << steps;
    is_whole = child.step_on(steps);
    if (is_whole) break;
    child.send(SIGUSR1);
    ++jumps;
  }
  EXPECT_TRUE(is_whole) << "it has more steps than that";
  EXPECT_GT(jumps, 40);
}

// If a lease arrives when the asking thread stops waiting, the lease either belongs to this thread
// or is returned to the server.
TEST(ClusterSteps, ALeaseThatComesInTheLastMomentIsNotLost) {
  if (tests::k_tsan || tests::k_asan)
    GTEST_SKIP() << "the child of a process with threads may wait for a sanitizer's lock for ever";
  std::mutex mutex;  // guards the next
  std::set<std::string> given_back;
  std::atomic<bool> is_asked{false}, is_held{false};
  FakeServer server([&](const std::string& line) {
    if (line.starts_with("md")) {
      const std::lock_guard lock(mutex);
      given_back.insert(key_in(line));
      return "HD O" + token_of(line) + "\r\n";
    }
    if (line.find(" N") == std::string::npos) return value(line, key_in(line));
    is_asked = true;
    while (is_held) std::this_thread::yield();
    return value(line, "", " W");
  });
  // The report of the child.
  struct Said {
    std::atomic<Outcome> outcome;
    std::atomic<std::uint64_t> trips;
  };
  auto* const said = static_cast<Said*>(
      mmap(nullptr, sizeof(Said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(said), MAP_FAILED);
  Tracee child([&] {
    AskingProcess process(server.name());
    ClusterClient& client = *process.running.client;
    for (int i = 0; i < 1000; ++i) {
      // The client stops asking a server for some time if it is late too often.
      for (int good = 0; good < 8;
           good += ask(client, ClusterKey("t", 1, "good"), k_patience) == Outcome::hit ? 1 : 0) {
      }
      const ClusterKey key("t", 1, std::to_string(i));
      said->trips = process.running.count(base::Counter::cluster_trips);
      raise(SIGSTOP);
      said->outcome = ask(client, key, k_short, 30);
    }
    return 0;
  });
  int won = 0, back = 0;
  ASSERT_TRUE(child.to_stop());
  for (int i = 0; i < 60; ++i) {
    is_held = true;
    is_asked = false;
    const std::uint64_t trips = said->trips;
    const std::uint64_t began = base::monotonic_ns();
    // Runs the child until its wait ends.
    while (child.to_system_call() && !child.is_at_raise() &&
           (!is_asked || base::monotonic_ns() < began + k_short)) {
    }
    if (i % 2 != 0) is_held = false;
    if (!child.is_at_raise()) child.step_on(3 * i);
    is_held = false;
    if (!child.is_at_raise()) {
      ASSERT_TRUE(child.to_stop()) << i;
    }
    // On a busy machine, the server may have been held for so long that the client stopped asking
    // it and closed the connection.
    if (!is_asked || said->trips != trips) continue;
    const auto is_back = [&] {
      const std::lock_guard lock(mutex);
      return given_back.contains(std::string(ClusterKey("t", 1, std::to_string(i)).text()));
    };
    if (said->outcome == Outcome::won) {
      ++won;
      continue;
    }
    ++back;
    const std::uint64_t until = base::monotonic_ns() + k_patience;
    while (!is_back() && base::monotonic_ns() < until) std::this_thread::yield();
    ASSERT_TRUE(is_back()) << i;
  }
  EXPECT_GT(back, 0);
  std::printf("%d leases came in time, %d went back\n", won, back);
  child.kill();
  munmap(said, sizeof *said);
}

TEST(ClusterSteps, RowIsReusableIfItsAnswerComesInTheLastMoment) {
  if (tests::k_tsan || tests::k_asan)
    GTEST_SKIP() << "the child of a process with threads may wait for a sanitizer's lock for ever";
  const std::string slow(ClusterKey("t", 1, "slow").text());
  std::atomic<bool> is_asked{false}, is_held{false};
  FakeServer server([&](const std::string& line) {
    if (key_in(line) == slow) {
      is_asked = true;
      while (is_held) std::this_thread::yield();
    }
    return value(line, key_in(line));
  });
  // How often the client's thread has looked for offers, which it does after it has taken answers.
  auto* const looks = static_cast<std::atomic<std::uint64_t>*>(mmap(
      nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(looks), MAP_FAILED);
  Tracee child([&] {
    AskingProcess process(server.name());
    const std::function<void()> note = [&] { ++*looks; };
    process.running.source.looked = &note;
    ClusterClient& client = *process.running.client;
    while (true) {
      // The client stops asking a server for some time if it is late too often.
      const std::uint64_t until = base::monotonic_ns() + k_patience;
      for (int good = 0; good < 8;) {
        good += ask(client, ClusterKey("t", 1, "good"), k_patience) == Outcome::hit ? 1 : 0;
        CHILD_CHECK(base::monotonic_ns() < until);
      }
      raise(SIGSTOP);
      const Outcome outcome = ask(client, ClusterKey("t", 1, "slow"), k_short);
      CHILD_CHECK(outcome == Outcome::hit || outcome == Outcome::late);
    }
  });
  ASSERT_TRUE(child.to_stop());
  // There are 32 rows.
  for (long steps = 0; steps < 40 * 4; steps += 4) {
    is_held = true;
    is_asked = false;
    const std::uint64_t began = base::monotonic_ns();
    // Runs the child until its wait ends.
    while (child.to_system_call() && !child.is_at_raise() &&
           (!is_asked || base::monotonic_ns() < began + k_short)) {
    }
    if (!child.is_at_raise()) child.step_on(steps);
    const std::uint64_t before = *looks, until = base::monotonic_ns() + k_patience;
    is_held = false;
    while (*looks == before && base::monotonic_ns() < until) std::this_thread::yield();
    if (!child.is_at_raise()) {
      ASSERT_TRUE(child.to_stop()) << "its exit status is " << child.exit_status();
    }
  }
  child.kill();
  munmap(looks, sizeof *looks);
}

}  // namespace
}  // namespace cube::cache
