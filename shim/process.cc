#include "shim/process.h"

#include "cache/base/clock.h"
#include "cache/base/lifted_fd_limit.h"
#include "cache/base/log.h"
#include "cache/base/signal_frame.h"
#include "cache/report/write_report.h"
#include "shim/attachment.h"
#include "shim/background.h"
#include "shim/calls/c_result.h"
#include "shim/calls/mappings.h"
#include "shim/calls/new_fds.h"
#include "shim/fd_table.h"
#include "shim/materialize.h"
#include "shim/placeholder.h"
#include "shim/profile/profile.h"
#include "shim/spelling.h"

namespace cube::shim::process {

constinit const base::Config* g_config = nullptr;

constinit std::atomic<bool> g_active{false}, g_tells{false};
constinit std::atomic<Copies> g_serves_copies{Copies::no};
constinit thread_local bool t_vforked [[gnu::tls_model("initial-exec")]] = false;
constinit thread_local Forking t_forking [[gnu::tls_model("initial-exec")]] = Forking::no;
constinit std::atomic<bool> g_memory_is_shared{false};
constinit std::atomic<const std::uint32_t*> g_fork_mark{nullptr};
constinit std::atomic<const cache::Origins*> g_origins{nullptr};
constinit std::atomic<const cache::AllNames*> g_names{nullptr};

namespace {

namespace sys = base::sys;

constinit base::ProcessId g_job{};
constinit std::atomic<bool> g_speaks{false};
constinit std::atomic<bool> g_sealed{false};
constinit std::atomic<int> g_owner{0};
// One page of its own, which a fork hands to the child as zeros.
void make_fork_mark() {
  const long at = sys::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sys::failed(at)) return;
  if (sys::failed(sys::madvise(reinterpret_cast<void*>(at), 4096, MADV_WIPEONFORK))) return;
  auto* const mark = reinterpret_cast<std::uint32_t*>(at);
  *mark = 1;
  g_fork_mark.store(mark, std::memory_order_release);
}

}  // namespace

void start(const base::Config& config, const base::ProcessId& job, bool speaks) {
  g_config = &config;
  g_job = job;
  g_speaks.store(speaks, std::memory_order_relaxed);
  g_owner.store(sys::getpid(), std::memory_order_relaxed);
  base::remember_first_thread();
  background::end_with_this_thread();
  make_fork_mark();
  g_serves_copies.store(config.mode == base::Mode::real_files ? Copies::yes : Copies::no, std::memory_order_relaxed);
  // Release: pairs with the acquire in is_active.
  const bool is_on = config.mode != base::Mode::off && !config.prefixes.empty();
  g_tells.store(is_on, std::memory_order_release);
  g_active.store(is_on, std::memory_order_release);
  background::allow_cluster();
}

void disable(const char* why) {
  if (!g_active.exchange(false, std::memory_order_acq_rel)) return;
  // From now on its life is no proof that its view's namespaces live.
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache != nullptr && owns_table()) cache->region().leave_view();
  background::end_for_good();
  expect_new_fd();
  base::log(base::LogLevel::info, "files opened from now on are read without a cache: {}", why);
}

void prepare_identity() {
  materialize_streams();
  attachment::existing_cache();
}

void seal() {
  if (g_config == nullptr || !owns_table() || g_sealed.exchange(true)) return;
  materialize_streams();
  disable("the process puts a seccomp filter on");
  g_tells.store(false, std::memory_order_release);
  // No later fork is seen.
  let_writers_outlive_us();
  materialize_all(/*only_inherited=*/false, "seccomp");
  mappings::drop_region_fd();
  leave();
}

bool owns_table_slow() {
  // Not even a getpid; there is nothing left to own.
  if (g_sealed.load(std::memory_order_relaxed)) return false;
  const std::uint32_t* const mark = g_fork_mark.load(std::memory_order_relaxed);
  if (mark != nullptr && *mark == 0) {
    // A fork that did not come by us. Rows that another thread of the parent was changing would be waited for without end,
    // so they go first, as in every child.
    *const_cast<std::uint32_t*>(mark) = 1;
    g_owner.store(sys::getpid(), std::memory_order_relaxed);
    become_child();
    if (is_forking()) {
      t_forking = Forking::is_child;
    } else {
      // Libc does not know its own thread id there, nor the kernel its robust mutexes: nobody would learn of its death.
      disable("a fork that passed libc by");
      g_tells.store(false, std::memory_order_release);
    }
    return true;
  }
  if (sys::getpid() != g_owner.load(std::memory_order_relaxed)) return false;
  t_vforked = false;
  return true;
}

const base::ProcessId& job() { return g_job; }

bool has_list() { return g_config->prefetch && !g_config->prefetch_list.empty(); }

void expect_shared_memory_child() { g_memory_is_shared.store(true, std::memory_order_release); }

void prepare_child() {
  if (g_sealed.load(std::memory_order_relaxed) || !owns_table()) return;
  materialize_all(/*only_inherited=*/false, "fork");
  // To the child's dup2 a parked number is as closed as to its parent's.
  placeholder::unpark();
  let_writers_outlive_us();
}

void prepare_vforked_child() {
  attachment::existing_cache();
  prepare_child();
  t_vforked = true;
}

void end_fork() {
  if (!g_sealed.load(std::memory_order_relaxed) && owns_table()) let_writers_outlive_us();
}

void prepare_clone(std::uint64_t flags) {
  const bool shares_memory = (flags & CLONE_VM) != 0, shares_table = (flags & CLONE_FILES) != 0;
  // A thread like any other.
  if (shares_memory && shares_table) return;
  if (shares_memory) attachment::existing_cache();
  prepare_child();
  // One table of the kernel's and two of ours; or two of the kernel's in one process, which getpid does not tell apart.
  if (shares_table || (flags & CLONE_THREAD) != 0)
    disable("a clone that shares fds without memory, or is a thread without the fds");
}

void become_child() {
  if (g_sealed.load(std::memory_order_relaxed)) return;
  g_owner.store(sys::getpid(), std::memory_order_relaxed);
  if (auto* const mark = const_cast<std::uint32_t*>(g_fork_mark.load(std::memory_order_relaxed)); mark != nullptr) *mark = 1;
  t_vforked = false;
  g_speaks.store(false, std::memory_order_relaxed);
  profile::become_child();
  cache::FileCache::forget_attaching();
  base::LiftedFdLimit::forget();
  // The files that other threads opened between our preparation and the fork, while the parent's region is still mapped.
  cache::FileCache::forget_fills();
  open_files::forget_pins();
  g_fds.end_busy_rows();
  materialize_all(/*only_inherited=*/false, "fork");
  mappings::forget_after_fork();
  background::become_child();
  attachment::become_child();
}

void before_libc_fork() {
  t_forking = Forking::begun;
  profile::before_fork();
  prepare_child();
}

void after_libc_fork() {
  profile::after_fork();
  end_fork();
  t_forking = Forking::no;
}

void in_libc_fork_child() {
  // Another handler's call may have been the first to see that this is a child.
  if (t_forking != Forking::is_child) become_child();
  t_forking = Forking::no;
}

namespace {

void report() {
  if (!g_speaks.exchange(false, std::memory_order_acq_rel)) return;
  cache::FileCache* const cache = attachment::cache_to_report_by();
  if (cache != nullptr) {
    flush_counters();
    cache::write_last_report(cache->region(), cache->region().own_job(), *g_config, spelling::has_opened_many());
  } else if (is_active()) {
    // Without a cache nobody knows what was opened.
    cache::write_empty_report(*g_config, g_job.pid, spelling::has_opened_many() && !attachment::has_failed());
  }
}

}  // namespace

void stderr_ends() {
  if (g_config == nullptr || g_config->stats != "stderr" || !owns_table()) return;
  const KeepErrno keep;
  report();
}

void leave() {
  if (g_config == nullptr || !owns_table()) return;
  const KeepErrno keep;
  profile::leave();
  background::stop();
  base::write_kept_lines();
  report();
  attachment::leave();
}

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
