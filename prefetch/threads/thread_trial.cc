#include "prefetch/threads/thread_trial.h"

#include <linux/close_range.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "cache/base/clock.h"
#include "cache/base/memory/mapping.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/sys.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

constexpr std::uint64_t k_patience_ns = 1'000'000'000;

// The result for each set of calls that was tried. The results stay valid in a forked child, which
// has the parent's filters.
constinit std::atomic<int> g_known[2] = {INT_MIN, INT_MIN};

// valgrind ends a program that makes a clone of this kind.
bool is_under_valgrind() {
  const char* const preload = std::getenv("LD_PRELOAD");
  return preload != nullptr &&
         std::string_view(preload).find("/vgpreload_") != std::string_view::npos;
}

// Makes the calls of the cluster client and its helper threads (cache/tier/cluster). The socket
// type does not exist, so no socket is made.
void call_as_cluster_does() {
  constexpr int k_no_type = 15, k_no_fd = -1;
  for (const int family : {AF_INET, AF_INET6, AF_UNIX})
    sys::raw(SYS_socket, family, k_no_type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sys::raw(SYS_setsockopt, k_no_fd, IPPROTO_TCP, TCP_NODELAY, 0, 0);
  sys::raw(SYS_getsockopt, k_no_fd, SOL_SOCKET, SO_ERROR, 0, 0);
  sys::raw(SYS_connect, k_no_fd, 0, 0);
  sys::raw(SYS_sendto, k_no_fd, 0, 0, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0);
  sys::raw(SYS_recvfrom, k_no_fd, 0, 0, MSG_DONTWAIT, 0, 0);
  const timespec at_once{};
  sys::raw(SYS_ppoll, 0, 0, sys::arg(&at_once), 0, 8);
  sys::raw(SYS_getrandom, 0, 0, 0);
  sys::raw(SYS_prctl, PR_SET_TIMERSLACK, 0);
  sys::raw(SYS_getpriority, PRIO_PROCESS, 0);
  // The target is invalid, because a lower priority would delay the end of this child.
  sys::raw(SYS_setpriority, -1, 0, 0);
  // The calls that each thread of the library makes when it starts (starter_traits.cc). Here these
  // calls change nothing, because they pass neither a mask nor parameters.
  sys::raw(SYS_sched_getscheduler, 0);
  sys::raw(SYS_sched_setscheduler, 0, 0, 0);
  sys::raw(SYS_sched_getaffinity, 0, 0, 0);
  sys::raw(SYS_sched_setaffinity, 0, 0, 0);
  sys::raw(SYS_ioprio_get, 0, 0);
  sys::raw(SYS_ioprio_set, 0, 0, 0);
}

// Makes raw calls only: a lock could be held by a thread that does not exist in this child.
[[noreturn]] void run_child(std::atomic<std::uint32_t>& may_be_waited_for, ThreadCalls calls) {
  // The call that the parent is about to make.
  sys::raw(SYS_wait4, -1, 0, WNOHANG | __WALL, 0);
  may_be_waited_for.store(1, std::memory_order_release);
  sys::futex_wake_all(&may_be_waited_for);
  // If a call kills this child, the program's memory must not be dumped.
  sys::raw(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
  // The calls that libc and start_background_thread make to start and end a thread. Here, these
  // calls have no effect.
  const long self = sys::raw(SYS_gettid);
  sys::raw(SYS_clone3, 0, 0);
  sys::raw(SYS_set_robust_list, 0, 24);
  sys::raw(SYS_rseq, 0, 0, 0, 0);
  sys::raw(SYS_mprotect, 0, 0, 0);
  sys::raw(SYS_madvise, 0, 0, 0);
  sys::raw(SYS_munmap, 0, 0);
  sys::raw(SYS_tgkill, self, self, 0);
  if (calls == ThreadCalls::with_cluster) call_as_cluster_does();
  const long error = sys::raw(SYS_close_range, 0, ~0U, CLOSE_RANGE_UNSHARE);
  for (;;) sys::raw(SYS_exit, sys::failed(error) ? -error : 0);
}

int run_trial(ThreadCalls calls) {
  auto shared = base::Mapping::shared_zeros(4096);
  if (!shared || is_under_valgrind()) return k_killed;
  auto& may_be_waited_for = *reinterpret_cast<std::atomic<std::uint32_t>*>(shared->data());
  const base::BlockSignals block;
  // The child shares the fd table, so its end closes no file of the program. The child sends no
  // signal at its end, so only waits with __WALL or __WCLONE see it.
  const long child = sys::raw(SYS_clone, CLONE_FILES | CLONE_UNTRACED, 0, 0, 0, 0);
  if (child == 0) run_child(may_be_waited_for, calls);
  if (sys::failed(child)) return k_killed;
  const std::uint64_t until = base::monotonic_ns() + k_patience_ns;
  while (may_be_waited_for.load(std::memory_order_acquire) == 0) {
    const std::uint64_t now = base::monotonic_ns();
    // The child did not survive its first call, wait4, which would also kill this process.
    if (now >= until) return k_killed;
    sys::futex_wait(&may_be_waited_for, 0, until - now);
  }
  int status = 0;
  long ended;
  do ended = sys::raw(SYS_wait4, child, sys::arg(&status), __WALL, 0);
  while (ended == -EINTR);
  return ended == child && WIFEXITED(status) ? WEXITSTATUS(status) : k_killed;
}

}  // namespace

int try_calls_of_threads(ThreadCalls calls) {
  std::atomic<int>& known = g_known[static_cast<int>(calls)];
  int result = known.load(std::memory_order_relaxed);
  if (result == INT_MIN) known.store(result = run_trial(calls), std::memory_order_relaxed);
  return result;
}

bool are_known_to_be_allowed(ThreadCalls calls) {
  return g_known[static_cast<int>(calls)].load(std::memory_order_relaxed) == 0;
}

}  // namespace cube::prefetch
