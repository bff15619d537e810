#include "prefetch/threads/background_thread.h"

#include <linux/close_range.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/libc_functions.h"
#include "cache/base/log.h"
#include "cache/base/memory/kernel_page.h"
#include "cache/base/memory/mapping.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/own_fds.h"
#include "cache/base/sanitizers.h"
#include "cache/base/sys.h"
#include "prefetch/threads/starter_traits.h"

extern "C" {
// worker.S
long cube_start_worker(std::uint32_t* state, void* stack, void* thread_pointer, long stays_asleep);
void cube_keep_asleep(std::uint32_t* state, std::uint32_t* told);
}

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

// The thread ids of the running threads; 0 marks a free place. The table has room for three engines
// with the maximum number of threads and a keeper for each thread, and some more.
constinit std::atomic<int> g_threads[2048] = {};

// The number of pairs whose keeper has not yet called end_keeper().
constinit std::atomic<int> g_pairs{0};

std::atomic<int>* enter_thread() {
  const int self = static_cast<int>(sys::raw(SYS_gettid));
  for (auto& thread : g_threads) {
    int none = 0;
    if (thread.compare_exchange_strong(none, self, std::memory_order_acq_rel)) return &thread;
  }
  return nullptr;
}

bool has_gone(std::atomic<int>& thread) {
  int tid = thread.load(std::memory_order_acquire);
  if (tid == 0) return true;
  if (sys::raw(SYS_tgkill, sys::getpid(), tid, 0) != -ESRCH) return false;
  // The place is freed only after the kernel has removed the thread from the process.
  thread.compare_exchange_strong(tid, 0, std::memory_order_acq_rel);
  return true;
}

// The stack that a keeper and its worker share, with an inaccessible page below it. The library
// maps it, because libc could choose a place where the program has just unmapped something
// (own_place.h). It is never unmapped.
struct Stack {
  static constexpr int k_in_use = -1;
  // k_in_use, the thread id of a keeper that is about to end, or 0: free.
  std::atomic<int> leaving{0};
  std::size_t bytes = 0;
  std::byte* at = nullptr;

  bool make(std::size_t wanted) {
    const std::size_t guard = base::kernel_page();
    auto fresh = base::Mapping::anonymous(guard + wanted);
    if (!fresh || sys::failed(sys::raw(SYS_mprotect, sys::arg(fresh->data()),
                                       static_cast<long>(guard), PROT_NONE)))
      return false;
    bytes = wanted;
    at = fresh->data() + guard;
    fresh->forget();
    return true;
  }
};
constinit Stack g_stacks[1024];

// Returns null if there is no room; libc then makes the stack.
Stack* take_stack(std::size_t bytes) {
  for (Stack& stack : g_stacks) {
    int none = 0;
    if (stack.leaving.load(std::memory_order_acquire) == Stack::k_in_use ||
        !has_gone(stack.leaving) ||
        !stack.leaving.compare_exchange_strong(none, Stack::k_in_use, std::memory_order_acq_rel))
      continue;
    const bool is_made = stack.at != nullptr || stack.make(bytes);
    if (is_made && stack.bytes >= bytes) return &stack;
    stack.leaving.store(0, std::memory_order_release);
    if (!is_made) return nullptr;
  }
  return nullptr;
}

// How long a thread of low priority might wait for a processor.
constexpr std::uint64_t k_longest_run_ns = 10'000'000'000, k_between_looks_ns = 100'000;

// Returns true if the thread only needs a processor and so will end. Otherwise the thread waits for
// something else, possibly an origin.
bool is_running(int tid) {
  char path[64] = "/proc/self/task/", text[128];
  *std::to_chars(path + 16, path + 32, tid).ptr = '/';
  std::string_view("stat").copy(path + std::string_view(path).size(), 4);
  const long n = sys::read_small_file(path, text, sizeof text);
  const std::string_view stat(text, sys::failed(n) ? 0 : static_cast<std::size_t>(n));
  // "NUMBER (NAME) R ..."
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string_view::npos &&
         std::string_view("SDTtI").find(stat[name_end + 2]) == std::string_view::npos;
}

// Each thread of the library is a pair of kernel threads. The *keeper* is made by pthread_create
// and never leaves the host's fd table. It runs the host's code for the beginning and the end of a
// thread (a wrapped start routine, destructors of thread-specific data, a hooked malloc), and
// otherwise sleeps in the kernel. The *worker* is a raw clone. It runs the body on the keeper's
// stack and with the keeper's thread-local storage, so errno and libc's mutexes work. The worker
// may leave the host's fd table. It ends by a raw system call.
struct Pair {
  void (*body)(void*);
  void* argument;
  bool may_change_traits;
  // If true, the worker that starts this pair makes the new worker; if false, this pair's keeper
  // makes it. Only a worker can pass its own fd table to a new worker. A thread of the host must
  // not wait for a keeper, because the thread might hold a lock that the host's code in the keeper
  // needs.
  bool is_made_by_starter;
  // A futex. Its value is k_before, k_asks, the worker's thread id (stored by the kernel), or 0
  // after the end of the worker (also stored by the kernel).
  std::uint32_t state = k_before;
  // A futex. Its value is 1 when the keeper has written the next two members.
  std::uint32_t is_ready = 0;
  void *stack = nullptr, *thread_pointer = nullptr;
  // The pair whose keeper this pair's keeper must make, at the request of the worker.
  Pair* wanted = nullptr;
  std::size_t wanted_stack = 0;
  int error = 0;
  Stack* own_stack = nullptr;  // null: libc's
  bool has_own_fds = false;    // base::t_has_own_fds of the starter, for the worker

  static constexpr std::uint32_t k_before = 1, k_asks = ~0U;
};

// The worker's pair while the worker runs; null while a keeper runs, which shares this storage.
constinit thread_local Pair* t_pair [[gnu::tls_model("initial-exec")]] = nullptr;
// True while a keeper itself runs the body, because the kernel has no thread left for a worker.
constinit thread_local bool t_keeps_hosts_fds [[gnu::tls_model("initial-exec")]] = false;

// The keeper's part of the stack, above the worker's part. It holds the frames of handlers of
// libc's two signals, and of pthread_create with all hooks that the host has put into it.
constexpr std::size_t k_keepers_stack = 64 << 10;
constexpr std::size_t k_most_stack = 64 << 20;

std::uint32_t load(const std::uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

[[noreturn]] void work(Pair* own) {
  t_pair = own;
  base::t_has_own_fds = own->has_own_fds;
  // If there is no free place, frees the places of threads that have ended.
  if (enter_thread() == nullptr) {
    for (auto& thread : g_threads) has_gone(thread);
    enter_thread();
  }
  own->body(own->argument);
  t_pair = nullptr;
  for (;;) sys::raw(SYS_exit, 0);
}

void* thread_pointer() {
  void* pointer;
#if defined(__x86_64__)
  asm("mov %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
  asm("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
  return pointer;
}

// Lays out the stack from which cube_start_worker takes the function and its argument.
void prepare(Pair& own, void* frame) {
  auto* const top = reinterpret_cast<void**>(
      (reinterpret_cast<std::uintptr_t>(frame) - k_keepers_stack) & ~std::uintptr_t{15});
  top[-1] = &own;
  top[-2] = reinterpret_cast<void*>(&work);
  own.stack = top - 2;
  own.thread_pointer = thread_pointer();
}

void* keep(void* of);

std::size_t least_stack(const pthread_attr_t& attributes) {
  return base::g_libc.least_stack != nullptr ? base::g_libc.least_stack(&attributes) : 0;
}

int create(Pair* pair, std::size_t stack) {
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) return error;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  int error = EINVAL;
  // EINVAL means that least_stack() is not known and that the thread-local storage of libraries
  // leaves too little of the stack.
  for (std::size_t size = stack + k_keepers_stack + least_stack(attributes);
       error == EINVAL && size <= k_most_stack; size *= 2) {
    Stack* const own = pair->own_stack = take_stack(size);
    error = own != nullptr ? pthread_attr_setstack(&attributes, own->at, own->bytes)
                           : pthread_attr_setstacksize(&attributes, size);
    if (error == 0) error = pthread_create(&thread, &attributes, keep, pair);
    if (error != 0 && own != nullptr) own->leaving.store(0, std::memory_order_release);
  }
  pthread_attr_destroy(&attributes);
  return error;
}

// Registers a keeper that is about to end, together with its stack.
void end_keeper(Pair& own) {
  enter_thread();
  if (own.own_stack != nullptr)
    own.own_stack->leaving.store(static_cast<int>(sys::raw(SYS_gettid)), std::memory_order_release);
  g_pairs.fetch_sub(1, std::memory_order_release);
  delete &own;
}

void run_alone(Pair& own) {
  t_keeps_hosts_fds = true;
  own.body(own.argument);
  t_keeps_hosts_fds = false;
}

void* keep(void* of) {
  Pair& own = *static_cast<Pair*>(of);
  base::keep_lines_of_this_thread();
  leave_traits_of_starter(own.may_change_traits);
  // ThreadSanitizer must know every thread, so the keeper itself does the work.
  if (CUBE_TSAN) {
    enter_thread();
    own.body(own.argument);
    end_keeper(own);
    return nullptr;
  }
  prepare(own, __builtin_frame_address(0));
  if (own.is_made_by_starter) {
    cube_keep_asleep(&own.state, &own.is_ready);
  } else if (sys::failed(cube_start_worker(&own.state, own.stack, own.thread_pointer,
                                           /*stays_asleep=*/1))) {
    run_alone(own);
    own.state = 0;
  }
  while (load(own.state) == Pair::k_asks) {
    Pair* const worker = std::exchange(t_pair, nullptr);
    own.error = create(own.wanted, own.wanted_stack);
    t_pair = worker;
    cube_keep_asleep(&own.state, &own.state);
  }
  // The worker might still be in the kernel; its own place stays taken until it is gone.
  end_keeper(own);
  return nullptr;
}

// Called by a worker. A worker can safely wait for its keeper, because the worker holds no lock of
// the host.
int create_by_keeper(Pair& own, Pair* pair, std::size_t stack) {
  own.wanted = pair;
  own.wanted_stack = stack;
  __atomic_store_n(&own.state, Pair::k_asks, __ATOMIC_RELEASE);
  sys::futex_wake_all(&own.state);
  while (load(own.state) == Pair::k_asks) sys::futex_wait(&own.state, Pair::k_asks);
  if (own.error != 0) return own.error;
  while (load(pair->is_ready) == 0) sys::futex_wait(&pair->is_ready, 0);
  return 0;
}

}  // namespace

int start_background_thread(void (*body)(void*), void* argument, std::size_t stack,
                            bool may_change) {
  Pair* const starter = t_pair;
  auto* const pair = new (std::nothrow) Pair{body, argument, may_change, starter != nullptr};
  if (pair == nullptr) return ENOMEM;
  pair->has_own_fds = starter != nullptr && base::t_has_own_fds;
  g_pairs.fetch_add(1, std::memory_order_relaxed);
  int error = 0;
  {
    const base::BlockSignals block(base::BlockSignals::k_but_libcs);
    error = starter != nullptr ? create_by_keeper(*starter, pair, stack) : create(pair, stack);
  }
  if (error != 0) {
    g_pairs.fetch_sub(1, std::memory_order_release);
    delete pair;
    return error;
  }
  if (starter == nullptr || CUBE_TSAN) return 0;
  const long worker =
      cube_start_worker(&pair->state, pair->stack, pair->thread_pointer, /*stays_asleep=*/0);
  if (!sys::failed(worker)) return 0;
  // The keeper ends and deletes the pair.
  __atomic_store_n(&pair->state, 0, __ATOMIC_RELEASE);
  sys::futex_wake_all(&pair->state);
  return static_cast<int>(-worker);
}

bool wait_for_background_threads(unsigned at_most_ms) {
  const std::uint64_t until = base::monotonic_ns() + std::uint64_t{at_most_ms} * 1'000'000;
  while (true) {
    bool all = g_pairs.load(std::memory_order_acquire) == 0, do_others_run = true;
    const std::uint64_t now = base::monotonic_ns();
    for (auto& thread : g_threads) {
      const int tid = thread.load(std::memory_order_acquire);
      if (has_gone(thread)) continue;
      all = false;
      if (now >= until && !is_running(tid) && !has_gone(thread)) do_others_run = false;
    }
    if (all || (now >= until && (!do_others_run || now >= until + k_longest_run_ns))) return all;
    // Sleeps, because yielding gives no processor to a thread of lower priority.
    const std::uint32_t word = 0;
    sys::futex_wait(&word, 0, k_between_looks_ns);
  }
}

void forget_background_threads() {
  g_pairs.store(0, std::memory_order_relaxed);
  for (auto& thread : g_threads) thread.store(0, std::memory_order_relaxed);
  for (Stack& stack : g_stacks) stack.leaving.store(0, std::memory_order_relaxed);
}

base::Result<bool> take_private_fd_table() {
  if (t_keeps_hosts_fds) return base::fail(EAGAIN);
  const long error = sys::raw(SYS_close_range, 0, ~0U, CLOSE_RANGE_UNSHARE);
  if (sys::failed(error)) return base::fail(static_cast<int>(-error));
  return base::t_has_own_fds = true;
}

}  // namespace cube::prefetch
