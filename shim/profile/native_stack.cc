#include "shim/profile/native_stack.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/memory/can_read.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/library_tables.h"
#include "cache/base/process/signal_frame.h"
#include "shim/profile/loader_lock.h"
#include "shim/profile/own_calls.h"

namespace cube::shim::profile::native {
namespace {

using Backtrace = int(void**, int);
constinit Backtrace* g_backtrace = nullptr;
// The addresses of this library, from its first segment to its last.
constinit std::uintptr_t g_own_begin = 0, g_own_end = 0;

// A walking thread increments the count and then loads the gate. A fork closes the gate and then
// loads the count. So at least one of them sees the store of the other.
constinit std::atomic<std::uint32_t> g_walkers{0};
constinit std::atomic<bool> g_is_closed{false};
// True in a child if a thread of the parent was inside libunwind or the loader at the fork. The
// locks of that thread are never released in the child.
constinit std::atomic<bool> g_is_broken{false};

enum class Thread : std::uint8_t { is_new, ready, walking };
constinit thread_local Thread t_thread [[gnu::tls_model("initial-exec")]] = Thread::is_new;

// Enough stack for libunwind's frames, even if libunwind must first read a library's tables.
constexpr std::uintptr_t k_room = 24 << 10;
// The known part of this thread's stack. `is_whole` is true if the part includes the beginning of
// the stack.
struct KnownStack {
  std::uintptr_t begin, end;
  bool is_whole;
};
constinit thread_local KnownStack t_stack [[gnu::tls_model("initial-exec")]] = {};

void find_own_code() {
  dl_iterate_phdr(
      [](struct ::dl_phdr_info* info, size_t, void*) {
        const base::AddressRange range = base::range_of(*info);
        if (!range.has(reinterpret_cast<std::uintptr_t>(&find_own_code))) return 0;
        g_own_begin = range.begin;
        g_own_end = range.end;
        return 1;
      },
      nullptr);
}

// Replaces the pipe by which libunwind tests whether memory is readable (own_calls.h).
constexpr int k_no_fd = -2;
int pipe_of_libunwind(int* fds, int /*flags*/) {
  fds[0] = fds[1] = k_no_fd;
  return 0;
}
ssize_t write_of_libunwind(int fd, const void* from, size_t n) {
  if (fd != k_no_fd) return ::write(fd, from, n);
  if (base::can_read_around(reinterpret_cast<std::uintptr_t>(from))) return static_cast<ssize_t>(n);
  errno = EFAULT;
  return -1;
}
ssize_t read_of_libunwind(int fd, void* to, size_t n) {
  if (fd != k_no_fd) return ::read(fd, to, n);
  errno = EAGAIN;
  return -1;
}
int close_of_libunwind(int fd) { return fd != k_no_fd ? ::close(fd) : 0; }
// libunwind also calls read and write through syscall().
long syscall_of_libunwind(long number, long a, long b, long c, long d, long e, long f) {
  if (number == SYS_write)
    return write_of_libunwind(static_cast<int>(a), reinterpret_cast<const void*>(b),
                              static_cast<size_t>(c));
  if (number == SYS_read)
    return read_of_libunwind(static_cast<int>(a), reinterpret_cast<void*>(b),
                             static_cast<size_t>(c));
  const long result = base::sys::raw(number, a, b, c, d, e, f);
  if (!base::sys::failed(result)) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// At the end of a thread, libunwind takes a lock and frees the thread's memory. At that time,
// ThreadSanitizer has already forgotten the thread, and its pthread_mutex_lock would crash.
void take_locks_of_libc(const struct ::link_map& map) {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return;
  for (const char* const name :
       {"pthread_mutex_lock", "pthread_mutex_unlock", "sigprocmask", "mmap", "munmap"}) {
    const OwnCall call{name, dlsym(libc, name)};
    if (call.function != nullptr) take_calls(map, &call, 1);
  }
  dlclose(libc);
}

bool make_quiet(void* library) {
  struct ::link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return false;
  take_locks_of_libc(*map);
  const auto address = [](auto* function) { return reinterpret_cast<void*>(function); };
  const OwnCall writes[] = {{"write", address(&write_of_libunwind)},
                            {"syscall", address(&syscall_of_libunwind)}};
  const OwnCall others[] = {{"pipe", address(&pipe_of_libunwind)},
                            {"pipe2", address(&pipe_of_libunwind)},
                            {"read", address(&read_of_libunwind)},
                            {"close", address(&close_of_libunwind)}};
  const bool has_write = take_calls(*map, writes, std::size(writes)) != 0;
  return take_calls(*map, others, std::size(others)) == 0 || has_write;
}

// Does nothing in the first thread, whose stack grows. To find the size of that stack, libc would
// have to read a file.
void note_own_stack() {
  namespace sys = base::sys;
  pthread_attr_t all;
  if (sys::raw(SYS_gettid) == sys::getpid() || pthread_getattr_np(pthread_self(), &all) != 0)
    return;
  void* begin = nullptr;
  std::size_t size = 0;
  if (pthread_attr_getstack(&all, &begin, &size) == 0) {
    const auto at = reinterpret_cast<std::uintptr_t>(begin);
    t_stack = {at, at + size, true};
  }
  pthread_attr_destroy(&all);
}

// False if a walk could overflow the stack. An overflow would end the program or, without a guard
// page, overwrite the memory below the stack.
bool has_room() {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  stack_t other{};
  base::sys::raw(SYS_sigaltstack, 0, base::sys::arg(&other));
  if ((other.ss_flags & SS_ONSTACK) != 0)
    return here - reinterpret_cast<std::uintptr_t>(other.ss_sp) >= k_room;
  const bool is_known = here >= t_stack.begin && here < t_stack.end;
  if (is_known && here - t_stack.begin >= k_room) return true;
  if (is_known && t_stack.is_whole) return false;
  constexpr std::uintptr_t k_page = 4096;
  for (std::uintptr_t at = (here - k_room) / k_page * k_page; at < here; at += k_page) {
    if (!base::can_read_around(at)) return false;
  }
  if (!t_stack.is_whole) t_stack = {here - k_room, is_known ? t_stack.end : here + 1, false};
  return true;
}

// While an object exists, this thread runs no signal handlers, which could jump out of the walk.
// The thread is also not cancelled, because libunwind reaches cancellation points (it opens files)
// while it holds its locks.
class Undisturbed {
 public:
  Undisturbed() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_before_); }
  ~Undisturbed() { pthread_setcancelstate(cancel_before_, &cancel_before_); }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  const base::BlockSignals no_signals_;
  int cancel_before_ = PTHREAD_CANCEL_ENABLE;
};

bool may_walk() {
  if (t_thread == Thread::walking || g_is_broken.load(std::memory_order_relaxed)) return false;
  if (t_thread == Thread::is_new) {
    // In the first walk, the loader allocates libunwind's thread-local data. A signal handler must
    // not allocate.
    if (base::may_be_in_handler()) return false;
    note_own_stack();
    t_thread = Thread::ready;
  }
  return has_room() && loader_lock::is_free_soon();
}

}  // namespace

void start() {
  void* const library = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr && make_quiet(library))
    g_backtrace = reinterpret_cast<Backtrace*>(dlsym(library, "unw_backtrace"));
  if (g_backtrace == nullptr) {
    base::log(base::LogLevel::warn,
              "CUBESHIM_PROFILE: no native stacks, libunwind.so.8 is missing (Debian: libunwind8)");
    return;
  }
  find_own_code();
  loader_lock::find();
  // The first walk initializes libunwind, which then opens files and calls the loader.
  Stack stack;
  walk(stack);
}

const void* library() { return reinterpret_cast<const void*>(g_backtrace); }

bool walk(Stack& stack) {
  if (g_backtrace == nullptr || !may_walk()) return false;
  const Undisturbed undisturbed;
  g_walkers.fetch_add(1, std::memory_order_seq_cst);
  if (g_is_closed.load(std::memory_order_seq_cst)) {
    g_walkers.fetch_sub(1, std::memory_order_release);
    return false;
  }
  t_thread = Thread::walking;
  constexpr int k_own_frames = 8;
  void* frames[k_most_native + k_own_frames];
  const int count = g_backtrace(frames, static_cast<int>(std::size(frames)));
  t_thread = Thread::ready;
  g_walkers.fetch_sub(1, std::memory_order_release);
  for (int i = 0; i < count && stack.natives < k_most_native; ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(frames[i]);
    if (address != 0 && (address < g_own_begin || address >= g_own_end))
      stack.native[stack.natives++] = address;
  }
  return stack.natives != 0;
}

void before_fork() {
  if (g_backtrace == nullptr) return;
  g_is_closed.store(true, std::memory_order_seq_cst);
  constexpr std::uint64_t k_longest_ns = 10'000'000;
  const std::uint64_t until = base::monotonic_ns() + k_longest_ns;
  while (g_walkers.load(std::memory_order_seq_cst) != 0 && base::monotonic_ns() < until)
    sched_yield();
}

void after_fork() { g_is_closed.store(false, std::memory_order_release); }

void become_child() {
  const bool was_inside = g_walkers.exchange(0, std::memory_order_relaxed) != 0;
  if (was_inside || loader_lock::is_held_for_good())
    g_is_broken.store(true, std::memory_order_relaxed);
  after_fork();
}

}  // namespace cube::shim::profile::native
