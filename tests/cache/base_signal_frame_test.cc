// The library detects that a signal handler is running, on any stack, at any depth, and for each
// way to install the handler.
#include "cache/base/process/signal_frame.h"
#include "tests/support/sanitizers.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <vector>

namespace cube::base {
namespace {

bool g_seen = false;

__attribute__((noinline)) void ask_below(int frames) {
  volatile char room[3000];
  room[0] = static_cast<char>(frames);
  if (frames > 0) {
    ask_below(frames - 1);
  } else {
    raise(SIGUSR1);
  }
  static_cast<void>(room[0]);
}

bool is_seen_in_handler(int flags) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { g_seen = may_be_in_handler(); };
  action.sa_flags = flags;
  sigaction(SIGUSR1, &action, &before);
  g_seen = false;
  ask_below(100);
  sigaction(SIGUSR1, &before, nullptr);
  return g_seen;
}

void check_this_thread() {
  for (const int flags : {0, SA_NODEFER, SA_ONSTACK, SA_SIGINFO, static_cast<int>(SA_RESETHAND),
                          static_cast<int>(SA_RESETHAND) | SA_NODEFER}) {
    EXPECT_FALSE(may_be_in_handler());
    EXPECT_TRUE(is_seen_in_handler(flags)) << flags;
    EXPECT_FALSE(may_be_in_handler()) << "and not when it has ended";
  }
}

struct SignalFrame : testing::Test {
  SignalFrame() { remember_first_thread(); }
  void SetUp() override {
    if (tests::k_asan)
      GTEST_SKIP()
          << "AddressSanitizer has handlers of its own, and larger frames that keep old words";
  }
};

TEST_F(SignalFrame, IsSeenOnTheFirstThread) { check_this_thread(); }

TEST_F(SignalFrame, IsSeenOnAnyThread) { std::thread(check_this_thread).join(); }

TEST_F(SignalFrame, IsSeenOnAnAlternateStack) {
  std::vector<char> memory(1 << 16);
  stack_t own{}, before{};
  own.ss_sp = memory.data();
  own.ss_size = memory.size();
  sigaltstack(&own, &before);
  check_this_thread();
  sigaltstack(&before, nullptr);
}

// A program can map the handlers' stacks before it creates its threads. Then they are above the
// threads' own stacks.
TEST_F(SignalFrame, IsSeenOnAnAlternateStackAboveTheThreadsStack) {
  char memory[1 << 16];
  std::thread([&memory] {
    const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = sizeof memory};
    sigaltstack(&stack, nullptr);
    check_this_thread();
  }).join();
}

TEST_F(SignalFrame, IsNotSeenIfASignalWithAHandlerIsOnlyBlocked) {
  // This variable must not be on the stack. After the first sigaction of a signal, libc reports the
  // address to which handlers return, and on the stack this address would look like a signal frame.
  static struct sigaction before;
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGUSR1, &action, &before);
  sigset_t one, mask;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &one, &mask);
  EXPECT_FALSE(may_be_in_handler());
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace cube::base
