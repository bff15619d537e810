#include "prefetch/threads/starter_traits.h"

#include <linux/ioprio.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>

#include "cache/base/process/sandbox.h"
#include "cache/base/sys.h"
#include "prefetch/threads/thread_trial.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

// The result of may_change_traits() in the thread that started this one; `nothing` in a thread of
// the program.
enum class Told : unsigned char { nothing, no, yes };
constinit thread_local Told t_may_change [[gnu::tls_model("initial-exec")]] = Told::nothing;

// The scheduling policy without the SCHED_RESET_ON_FORK bit; negative if unknown.
long policy() {
  const long flags = sys::raw(SYS_sched_getscheduler, 0);
  return sys::failed(flags) ? -1 : flags & ~long{SCHED_RESET_ON_FORK};
}

void set_policy(int to) {
  const struct ::sched_param parameters {};
  sys::raw(SYS_sched_setscheduler, 0, to, sys::arg(&parameters));
}

void leave_real_time() {
  const long now = policy();
  // SCHED_DEADLINE needs no case: the kernel lets such a thread start only ordinary threads.
  if (now == SCHED_FIFO || now == SCHED_RR) set_policy(SCHED_OTHER);
}

// Sets the main thread's niceness if it is higher than this thread's. The raw call returns 20 -
// niceness.
void give_way_as_main_thread() {
  const long own = sys::raw(SYS_getpriority, PRIO_PROCESS, 0);
  const long of_main = sys::raw(SYS_getpriority, PRIO_PROCESS, sys::getpid());
  if (!sys::failed(own) && !sys::failed(of_main) && own > of_main)
    sys::raw(SYS_setpriority, PRIO_PROCESS, 0, 20 - of_main);
}

// Adds the main thread's processors. A threading runtime (OpenMP) pins each of its threads to one
// processor, which that thread keeps busy.
void take_processors_of_main_thread() {
  // Has bits for 8,192 CPUs, the maximum that a kernel supports. The call returns the number of
  // bytes that it has filled.
  constexpr std::size_t k_words = 8192 / 64;
  unsigned long own[k_words] = {}, mains[k_words] = {};
  const long of_own = sys::raw(SYS_sched_getaffinity, 0, sizeof own, sys::arg(own));
  const long of_main =
      sys::raw(SYS_sched_getaffinity, sys::getpid(), sizeof mains, sys::arg(mains));
  if (sys::failed(of_own) || sys::failed(of_main)) return;
  bool is_more = false;
  for (std::size_t i = 0; i < k_words; ++i) {
    is_more |= (mains[i] & ~own[i]) != 0;
    own[i] |= mains[i];
  }
  if (is_more) sys::raw(SYS_sched_setaffinity, 0, std::max(of_own, of_main), sys::arg(own));
}

// New threads inherit an I/O class that was set explicitly. Otherwise the class follows the
// niceness.
void lower_disk_priority() {
  constexpr int k_lowest = 7, k_this_thread = 0;
  const long now = sys::raw(SYS_ioprio_get, IOPRIO_WHO_PROCESS, k_this_thread);
  if (sys::failed(now)) return;
  const long chosen = IOPRIO_PRIO_CLASS(now);
  if (chosen == IOPRIO_CLASS_RT || chosen == IOPRIO_CLASS_BE)
    sys::raw(SYS_ioprio_set, IOPRIO_WHO_PROCESS, k_this_thread,
             IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, k_lowest));
}

}  // namespace

bool may_change_traits() {
  if (t_may_change != Told::nothing) return t_may_change == Told::yes;
  return !base::may_be_sandboxed() || are_known_to_be_allowed(ThreadCalls::with_cluster);
}

void leave_traits_of_starter(bool may_change) {
  t_may_change = may_change ? Told::yes : Told::no;
  if (!may_change) return;
  leave_real_time();
  give_way_as_main_thread();
  take_processors_of_main_thread();
  constexpr long k_default_slack_ns = 50'000;
  sys::raw(SYS_prctl, PR_SET_TIMERSLACK, k_default_slack_ns);
}

void lower_priority(int by) {
  if (by <= 0) return;
  if (t_may_change != Told::yes || policy() != SCHED_IDLE) set_policy(SCHED_BATCH);
  const long now = sys::raw(SYS_getpriority, PRIO_PROCESS, 0);
  if (!sys::failed(now)) sys::raw(SYS_setpriority, PRIO_PROCESS, 0, 20 - now + by);
  if (t_may_change == Told::yes) lower_disk_priority();
}

}  // namespace cube::prefetch
