#include "prefetch/threads/background_thread.h"

#include <linux/close_range.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <new>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/sys.h"
#include "prefetch/threads/starter_traits.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

// The threads that run, by their numbers; 0 is free. No more than three engines' most threads, and some.
constinit std::atomic<int> g_threads[1024] = {};

// On their way to their place there.
constinit std::atomic<int> g_starting{0};

std::atomic<int>* enter_thread() {
  const int self = static_cast<int>(sys::raw(SYS_gettid));
  for (auto& thread : g_threads) {
    int none = 0;
    if (thread.compare_exchange_strong(none, self, std::memory_order_acq_rel)) return &thread;
  }
  return nullptr;
}

bool has_gone(std::atomic<int>& thread) {
  int number = thread.load(std::memory_order_acquire);
  if (number == 0) return true;
  if (sys::raw(SYS_tgkill, sys::getpid(), number, 0) != -ESRCH) return false;
  // Its place stays its own until the kernel has taken it out of the process.
  thread.compare_exchange_strong(number, 0, std::memory_order_acq_rel);
  return true;
}

// No more than the kernel takes to give a processor to one of low priority.
constexpr std::uint64_t k_longest_run_ns = 10'000'000'000, k_between_looks_ns = 100'000;

// It needs nothing but a processor, and will end. Else it waits for something: for an origin, it may be.
bool is_running(int number) {
  char path[64] = "/proc/self/task/", text[128];
  *std::to_chars(path + 16, path + 32, number).ptr = '/';
  std::string_view("stat").copy(path + std::string_view(path).size(), 4);
  const long n = sys::read_small_file(path, text, sizeof text);
  const std::string_view stat(text, sys::failed(n) ? 0 : static_cast<std::size_t>(n));
  // "NUMBER (NAME) R ..."
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string_view::npos && std::string_view("SDTtI").find(stat[name_end + 2]) == std::string_view::npos;
}

struct Start {
  void (*body)(void*);
  void* argument;
  bool may_change_traits;
};

void* run(void* of) {
  const Start start = *static_cast<Start*>(of);
  delete static_cast<Start*>(of);
  base::keep_lines_of_this_thread();
  leave_traits_of_starter(start.may_change_traits);
  // No place: another has ended long since.
  if (enter_thread() == nullptr) {
    for (auto& thread : g_threads) has_gone(thread);
    enter_thread();
  }
  // Release: who sees it finds the place taken.
  g_starting.fetch_sub(1, std::memory_order_release);
  start.body(start.argument);
  return nullptr;
}

int create(Start* start, std::size_t stack) {
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) return error;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  int error = EINVAL;
  // EINVAL: the static thread-local storage of all libraries, which lies in the stack, leaves too little of it.
  for (std::size_t size = stack; error == EINVAL && size <= (8U << 20); size *= 2) {
    error = pthread_attr_setstacksize(&attributes, size);
    if (error == 0) error = pthread_create(&thread, &attributes, run, start);
  }
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace

int start_background_thread(void (*body)(void*), void* argument, std::size_t stack, bool may_change) {
  auto* const start = new (std::nothrow) Start{body, argument, may_change};
  if (start == nullptr) return ENOMEM;
  // Not by a raw call: libc keeps two signals of its own out of the mask, without which setuid() would wait for ever.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  g_starting.fetch_add(1, std::memory_order_relaxed);
  const int error = create(start, stack);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    g_starting.fetch_sub(1, std::memory_order_release);
    delete start;
  }
  return error;
}

bool wait_for_background_threads(unsigned at_most_ms) {
  const std::uint64_t until = base::monotonic_ns() + std::uint64_t{at_most_ms} * 1'000'000;
  while (true) {
    bool all = g_starting.load(std::memory_order_acquire) == 0, do_others_run = true;
    const std::uint64_t now = base::monotonic_ns();
    for (auto& thread : g_threads) {
      const int number = thread.load(std::memory_order_acquire);
      if (has_gone(thread)) continue;
      all = false;
      if (now >= until && !is_running(number) && !has_gone(thread)) do_others_run = false;
    }
    if (all || (now >= until && (!do_others_run || now >= until + k_longest_run_ns))) return all;
    // Not by yielding: that leaves no processor to a thread of lower priority.
    const std::uint32_t word = 0;
    const timespec pause{0, k_between_looks_ns};
    sys::futex_wait(&word, 0, &pause);
  }
}

void forget_background_threads() {
  g_starting.store(0, std::memory_order_relaxed);
  for (auto& thread : g_threads) thread.store(0, std::memory_order_relaxed);
}

base::Result<bool> take_private_fd_table() {
  const long error = sys::raw(SYS_close_range, 0, ~0U, CLOSE_RANGE_UNSHARE);
  if (sys::failed(error)) return base::fail(static_cast<int>(-error));
  return true;
}

}  // namespace cube::prefetch
