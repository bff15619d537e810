// If a signal handler leaves a call by longjmp, the thread's next call frees the memory that the
// call held.
#include "cache/base/memory/held.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "cache/base/memory/off_stack.h"
#include "cache/base/memory/scratch.h"
#include "cache/base/process/signal_frame.h"
#include "tests/support/sanitizers.h"

namespace cube::base {
namespace {

thread_local sigjmp_buf t_back;

// Calls body() like a signal handler. body() still holds its objects when it jumps.
template <typename Body>
[[gnu::noinline]] void leave_by_jump(Body&& body) {
  signal(SIGUSR2, [](int) { siglongjmp(t_back, 1); });
  if (sigsetjmp(t_back, 1) == 0) body();
}
template <typename T>
[[gnu::noinline]] const void* memory_of_one() {
  T object;
  if constexpr (std::is_same_v<T, OffStack>)
    return object.data();
  else
    return object.reserve(100);
}
std::set<const void*> g_held;

bool is_mapped(const void* at) {
  const auto page = reinterpret_cast<std::uintptr_t>(at) & ~std::uintptr_t{4095};
  unsigned char is_here = 0;
  return mincore(reinterpret_cast<void*>(page), 1, &is_here) == 0;
}

template <typename T>
[[gnu::noinline]] void hold_and_jump() {
  T object;
  if constexpr (std::is_same_v<T, Scratch>)
    g_held.insert(object.reserve(100));
  else
    g_held.insert(object.data());
  raise(SIGUSR2);
}
// Jumps from a frame further down the stack, so that a later call can be made from a frame above
// it.
template <typename T>
[[gnu::noinline]] void hold_below_and_jump() {
  volatile char room[2000];
  room[0] = 0;
  hold_and_jump<T>();
  static_cast<void>(room[0]);
}

struct HeldByAJump : testing::Test {
  HeldByAJump() { remember_first_thread(); }
  ~HeldByAJump() override { signal(SIGUSR2, SIG_DFL); }
  void SetUp() override {
    if (tests::k_asan)
      GTEST_SKIP()
          << "AddressSanitizer has handlers of its own, and larger frames that keep old words";
  }
};

template <typename T>
void expect_the_same_memory_after_jumps() {
  const void* const before = memory_of_one<T>();
  g_held.clear();
  // Each object is at the same address as the previous object.
  for (int i = 0; i < 200; ++i) leave_by_jump(hold_below_and_jump<T>);
  EXPECT_EQ(g_held.size(), 1U);
  // This object is at a higher address.
  EXPECT_EQ(memory_of_one<T>(), before);
  for (int i = 0; i < 200; ++i) {
    leave_by_jump(hold_below_and_jump<T>);
    leave_by_jump(hold_and_jump<T>);
  }
  EXPECT_LE(std::count_if(g_held.begin(), g_held.end(), is_mapped), 2);
}

TEST_F(HeldByAJump, OffStackMemoryIsFreed) {
  expect_the_same_memory_after_jumps<OffStack>();
  std::thread(expect_the_same_memory_after_jumps<OffStack>).join();
}

TEST_F(HeldByAJump, ScratchMemoryIsFreed) {
  expect_the_same_memory_after_jumps<Scratch>();
  std::thread(expect_the_same_memory_after_jumps<Scratch>).join();
}

// Interrupted code goes on using its piece, even if the handler runs on another stack.
TEST_F(HeldByAJump, HandlerDoesNotUseTheMemoryOfTheInterruptedCode) {
  // The handler's stack is above or below the thread's stack. The test uses two threads, so that
  // the handler's stack is on the wrong side for one of them.
  static std::vector<char> stack(1 << 16);
  static const void* in_handler = nullptr;
  const auto interrupt = [](int flags) {
    struct sigaction action {};
    action.sa_handler = [](int) { in_handler = memory_of_one<OffStack>(); };
    action.sa_flags = flags;
    sigaction(SIGUSR2, &action, nullptr);
    const OffStack own;
    raise(SIGUSR2);
    EXPECT_NE(in_handler, own.data());
    EXPECT_NE(memory_of_one<OffStack>(), own.data());
  };
  interrupt(0);
  char above[1 << 16];
  std::thread([&] {
    const stack_t alternative{.ss_sp = above, .ss_flags = 0, .ss_size = sizeof above};
    sigaltstack(&alternative, nullptr);
    interrupt(SA_ONSTACK);
  }).join();
  const stack_t alternative{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  sigaltstack(&alternative, nullptr);
  interrupt(SA_ONSTACK);
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  sigaltstack(&none, nullptr);
}

}  // namespace
}  // namespace cube::base
