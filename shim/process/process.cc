#include "shim/process/process.h"

#include "cache/base/clock.h"
#include "cache/base/memory/own_place.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/process_id.h"
#include "cache/report/write_report.h"
#include "shim/process/c_result.h"

namespace cube::shim::process {

constinit const base::Config* g_config = nullptr;

constinit std::atomic<bool> g_active{false}, g_tells{false}, g_is_loaded{false};
constinit std::atomic<Copies> g_serves_copies{Copies::no};
constinit std::atomic<bool> g_may_close_unseen{false};
constinit std::atomic<int> g_doubted_rings{0};
constinit thread_local bool t_vforked [[gnu::tls_model("initial-exec")]] = false;
// The signals that the thread had blocked when it called vfork.
constinit thread_local std::uint64_t t_blocked_at_vfork [[gnu::tls_model("initial-exec")]] = 0;
constinit thread_local Forking t_forking [[gnu::tls_model("initial-exec")]] = Forking::no;
constinit std::atomic<bool> g_memory_is_shared{false};
constinit std::atomic<const std::uint32_t*> g_fork_mark{nullptr};
constinit std::atomic<const cache::Origins*> g_origins{nullptr};
constinit std::atomic<const cache::AllMetadata*> g_origin_metadata{nullptr};
constinit std::atomic<bool> g_speaks{false};
constinit std::atomic<bool> g_sealed{false};
constinit const Upcalls* g_upcalls = nullptr;

namespace {

namespace sys = base::sys;

constinit base::ProcessId g_job{};
constinit std::atomic<int> g_owner{0};
// 0: all children are in the pid namespace of this process.
constinit std::atomic<std::uint64_t> g_owners_namespace{0};

}  // namespace

// The mark has its own page, which the kernel wipes in the child of a fork.
void make_fork_mark() {
  const long at = sys::mmap(base::own_place(4096), 4096, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sys::failed(at)) return;
  if (sys::failed(sys::madvise(reinterpret_cast<void*>(at), 4096, MADV_WIPEONFORK))) return;
  auto* const mark = reinterpret_cast<std::uint32_t*>(at);
  *mark = 1;
  g_fork_mark.store(mark, std::memory_order_release);
}

void note_owner() {
  g_owner.store(sys::getpid(), std::memory_order_relaxed);
  if (g_owners_namespace.load(std::memory_order_relaxed) != 0) expect_other_pid_namespaces();
  if (auto* const mark = const_cast<std::uint32_t*>(g_fork_mark.load(std::memory_order_relaxed));
      mark != nullptr)
    *mark = 1;
}

void disable(const char* why) {
  if (g_active.exchange(false, std::memory_order_acq_rel) && g_upcalls != nullptr)
    g_upcalls->disabled(why);
}

void expect_other_pid_namespaces() {
  g_owners_namespace.store(base::own_pid_namespace(), std::memory_order_relaxed);
}

void expect_vfork() {
  t_blocked_at_vfork = base::blocked_signals();
  t_vforked = true;
}

bool owns_table_slow() {
  // A sealed process serves nothing and must make no system call, not even getpid.
  if (g_sealed.load(std::memory_order_relaxed)) return false;
  const std::uint32_t* const mark = g_fork_mark.load(std::memory_order_relaxed);
  if (mark != nullptr && *mark == 0) {
    // A fork that bypassed the shim has made this process. As in every child, first empty the rows
    // that another thread of the parent was changing, because a wait for such a row would never
    // end.
    note_owner();
    if (g_upcalls != nullptr) g_upcalls->become_child();
    if (is_forking()) {
      t_forking = Forking::is_child;
    } else {
      // In such a child, libc has the wrong thread id, and the kernel does not know the child's
      // robust mutexes. So other processes would not notice the child's death.
      disable("a fork that bypassed libc");
      g_tells.store(false, std::memory_order_release);
    }
    return true;
  }
  if (sys::getpid() != g_owner.load(std::memory_order_relaxed)) return false;
  const std::uint64_t namespace_of_owner = g_owners_namespace.load(std::memory_order_relaxed);
  if (namespace_of_owner != 0 && base::own_pid_namespace() != namespace_of_owner) return false;
  // The mark stays if the thread blocks further signals. A signal handler blocks its own signal,
  // and may run before the child exists.
  if (t_vforked && (base::blocked_signals() & ~t_blocked_at_vfork) == 0) t_vforked = false;
  return true;
}

void set_job(const base::ProcessId& job) { g_job = job; }

const base::ProcessId& job() { return g_job; }

bool has_list() { return g_config->prefetch && !g_config->prefetch_list.empty(); }

void report_if_due_slow(cache::FileCache& cache) {
  base::write_kept_lines();
  const std::uint64_t interval = g_config->stats_interval;
  if (interval == 0) return;
  cache::Region& region = cache.region();
  if (!cache::report_interval_passed(region, region.own_job(), interval)) return;
  const KeepErrno keep;
  cache::write_report(region, region.own_job(), *g_config, g_job.pid);
}

}  // namespace cube::shim::process
