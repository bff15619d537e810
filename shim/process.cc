#include "shim/process.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "cache/base/clock.h"
#include "cache/base/lifted_fd_limit.h"
#include "cache/base/log.h"
#include "cache/base/signal_frame.h"
#include "cache/job_report.h"
#include "prefetch/background_thread.h"
#include "prefetch/sidecar.h"
#include "shim/c_result.h"
#include "shim/fd_table.h"
#include "shim/mappings.h"
#include "shim/materialize.h"
#include "shim/new_fds.h"
#include "shim/placeholder.h"
#include "shim/spelling.h"

namespace cube::shim::process {

constinit std::atomic<bool> g_active{false};
constinit thread_local bool t_vforked [[gnu::tls_model("initial-exec")]] = false;
constinit thread_local Forking t_forking [[gnu::tls_model("initial-exec")]] = Forking::no;
constinit std::atomic<bool> g_memory_is_shared{false};
constinit std::atomic<const std::uint32_t*> g_fork_mark{nullptr};
constinit std::atomic<const cache::Origins*> g_origins{nullptr};
constinit std::atomic<const cache::AllNames*> g_names{nullptr};

namespace {

namespace sys = base::sys;

enum class Attachment : int { none, busy, attached, failed, left };

constinit const base::Config* g_config = nullptr;
constinit base::ProcessId g_job{};
constinit std::atomic<bool> g_leader{false};
constinit std::atomic<bool> g_sealed{false};
constinit std::atomic<int> g_owner{0};
constinit std::atomic<Attachment> g_attachment{Attachment::none};
constinit std::atomic<cache::FileCache*> g_cache{nullptr};
constinit cache::FileCache* g_former_cache = nullptr;
// Looks at files without a cache, and when to look for one again (monotonic clock).
constinit std::atomic<std::uint32_t> g_looks{0};
constinit std::atomic<std::uint64_t> g_next_look_ns{0};

// The count of files that this process's parent has cached, plus one; 0 is none.
constinit std::uint64_t g_parents_devices[8] = {};

// none -> busy -> running, or over, for good.
enum class SidecarState : int { none, busy, running, over };
constinit std::atomic<SidecarState> g_sidecar_state{SidecarState::none};
constinit prefetch::Sidecar* g_sidecar = nullptr;
constinit prefetch::Sidecar* g_former_sidecar = nullptr;

// In the only thread of a forked child, or in the one that ends the process.
void keep_reachable(cache::FileCache* cache) {
  cache->former = g_former_cache;
  g_former_cache = cache;
}

void keep_sidecar_reachable() {
  g_sidecar->former = g_former_sidecar;
  g_former_sidecar = std::exchange(g_sidecar, nullptr);
}

// One page of its own, which a fork hands to the child as zeros.
void make_fork_mark() {
  const long at = sys::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (sys::failed(at)) return;
  if (sys::failed(sys::madvise(reinterpret_cast<void*>(at), 4096, MADV_WIPEONFORK))) return;
  auto* const mark = reinterpret_cast<std::uint32_t*>(at);
  *mark = 1;
  g_fork_mark.store(mark, std::memory_order_release);
}

constinit thread_local bool t_attaching [[gnu::tls_model("initial-exec")]] = false;

// Memory that cannot be had is an error like another; nothing may be thrown through the host's frames.
base::Result<cache::FileCache*> try_attach(bool create, std::string& why) {
  try {
    return cache::FileCache::attach(*g_config, g_job, create, why);
  } catch (...) {
    return base::fail(ENOMEM);
  }
}

cache::FileCache* attach(bool create) {
  const auto state = g_attachment.load(std::memory_order_acquire);
  if (state != Attachment::none && state != Attachment::busy) return attached_cache();
  // A handler that leaves by a jump would leave all threads waiting for this one.
  const BlockSignals block;
  auto expected = Attachment::none;
  while (!g_attachment.compare_exchange_strong(expected, Attachment::busy, std::memory_order_acq_rel)) {
    // Another thread is at it; our own may be, below a signal handler or an allocator that opens files.
    if (expected != Attachment::busy || t_attaching) return attached_cache();
    sched_yield();
    expected = Attachment::none;
  }
  t_attaching = true;
  const KeepErrno keep;
  std::string why;
  const auto cache = try_attach(create, why);
  t_attaching = false;
  if (cache) {
    (*cache)->use_origins(origins());
    g_cache.store(*cache, std::memory_order_release);
    g_attachment.store(Attachment::attached, std::memory_order_release);
    return *cache;
  }
  if (!create && cache.error().value == ENOENT) {
    g_attachment.store(Attachment::none, std::memory_order_release);
    return nullptr;
  }
  base::log(base::LogLevel::warn, "files are read without a cache: {}", why.empty() ? strerrordesc_np(cache.error().value) : why);
  g_attachment.store(Attachment::failed, std::memory_order_release);
  return nullptr;
}

}  // namespace

void start(const base::Config& config, const base::ProcessId& job, bool leader) {
  g_config = &config;
  g_job = job;
  g_leader.store(leader, std::memory_order_relaxed);
  g_owner.store(sys::getpid(), std::memory_order_relaxed);
  base::remember_first_thread();
  make_fork_mark();
  g_active.store(config.mode != base::Mode::off && !config.prefixes.empty(), std::memory_order_release);
}

void disable(const char* why) {
  if (!g_active.exchange(false, std::memory_order_acq_rel)) return;
  pause_sidecar();
  g_sidecar_state.store(SidecarState::over, std::memory_order_release);
  expect_new_fd();
  base::log(base::LogLevel::info, "files opened from now on are read without a cache: {}", why);
}

void seal() {
  if (g_config == nullptr || !owns_table() || g_sealed.exchange(true)) return;
  disable("the process puts a seccomp filter on");
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
    }
    return true;
  }
  if (sys::getpid() != g_owner.load(std::memory_order_relaxed)) return false;
  t_vforked = false;
  return true;
}

namespace {

cache::FileCache* attach_to_serve(bool create) {
  // A fork that passed us by may show itself only here, and is then served no more.
  return owns_table() && is_active() ? attach(create) : nullptr;
}

}  // namespace

const base::Config& config() { return *g_config; }

cache::FileCache* attached_cache() { return g_cache.load(std::memory_order_acquire); }

cache::FileCache* cache() {
  cache::FileCache* const cache = attached_cache();
  return cache != nullptr ? cache : attach_to_serve(true);
}

cache::FileCache* existing_cache() {
  cache::FileCache* const cache = attached_cache();
  return cache != nullptr ? cache : attach_to_serve(false);
}

cache::FileCache* cache_of_device(std::uint64_t device) {
  cache::FileCache* const cache = attached_cache();
  if (cache != nullptr) return cache->changes().knows_device(device) ? cache : nullptr;
  for (const std::uint64_t known : g_parents_devices) {
    if (known == device + 1) return existing_cache();
  }
  return nullptr;
}

bool may_have_cached() { return attached_cache() != nullptr || g_parents_devices[0] != 0; }

bool has_list() { return g_config->prefetch && !g_config->prefetch_list.empty(); }

bool may_have_cache_to_look_at() {
  if (attached_cache() != nullptr || has_list()) return true;
  if (g_attachment.load(std::memory_order_relaxed) != Attachment::none) return false;
  // Not for a command that looks at a file or two, and not at each look where there is no region.
  constexpr std::uint32_t k_few = 8;
  constexpr std::uint64_t k_pause_ns = 1'000'000'000;
  if (g_looks.fetch_add(1, std::memory_order_relaxed) < k_few) return false;
  const std::uint64_t now = base::coarse_monotonic_ns();
  std::uint64_t due = g_next_look_ns.load(std::memory_order_relaxed);
  return now >= due && g_next_look_ns.compare_exchange_strong(due, now + k_pause_ns, std::memory_order_relaxed);
}

cache::FileCache* cache_to_look_at() {
  cache::FileCache* const looked_at = has_list() ? cache() : existing_cache();
  if (looked_at != nullptr) offer_sidecar(*looked_at);
  return looked_at;
}

bool start_sidecar() {
  const BlockSignals block;
  auto none = SidecarState::none;
  if (!g_sidecar_state.compare_exchange_strong(none, SidecarState::busy, std::memory_order_acq_rel))
    return none != SidecarState::over;
  const KeepErrno keep;
  cache::FileCache* const cache = process::cache();
  prefetch::Sidecar* const sidecar = cache != nullptr ? prefetch::Sidecar::start(*cache, *g_config) : nullptr;
  g_sidecar = sidecar;
  // An attachment that failed is not tried again.
  g_sidecar_state.store(sidecar != nullptr ? SidecarState::running : SidecarState::over, std::memory_order_release);
  return sidecar != nullptr;
}

namespace {

// Ends it, if there is one, and lets it be in `next` state. Whether there was one.
bool end_sidecar(SidecarState next) {
  auto running = SidecarState::running;
  if (!g_sidecar_state.compare_exchange_strong(running, next, std::memory_order_acq_rel)) {
    auto none = SidecarState::none;
    g_sidecar_state.compare_exchange_strong(none, next, std::memory_order_acq_rel);
    return false;
  }
  const KeepErrno keep;
  g_sidecar->stop();
  keep_sidecar_reachable();
  return true;
}

}  // namespace

void stop_sidecar() { end_sidecar(SidecarState::over); }

bool pause_sidecar() {
  constexpr unsigned k_patience_ms = 500;
  if (!end_sidecar(SidecarState::busy)) return false;
  if (!prefetch::wait_for_background_threads(k_patience_ms)) base::log(base::LogLevel::info, "a prefetch hangs at the origin");
  return true;
}

void resume_sidecar() {
  auto busy = SidecarState::busy;
  g_sidecar_state.compare_exchange_strong(busy, SidecarState::none, std::memory_order_acq_rel);
}

void offer_sidecar(cache::FileCache& cache) {
  if (g_sidecar_state.load(std::memory_order_relaxed) != SidecarState::none) return;
  const bool may_prefetch = g_config->prefetch && (cache.ahead().is_wanted() || has_list());
  // One process of the node writes to the disk. The others need no thread for it, until that one is gone.
  const bool may_write = !cache.tiers().is_empty() && !cache.ahead().ring().has_disk_writer();
  if (!may_prefetch && !may_write) return;
  // A thread is not made where a signal handler may have interrupted malloc. A later open tries again, and not each one, for
  // the question is dear.
  static constinit std::atomic<std::uint32_t> tries{0};
  const std::uint32_t n = tries.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool is_due = std::has_single_bit(n) || n % 1024 == 0;
  if (is_due && !base::may_be_in_handler()) start_sidecar();
}

void expect_vforked_child() { t_vforked = true; }
void expect_shared_memory_child() { g_memory_is_shared.store(true, std::memory_order_release); }

void prepare_child() {
  if (g_sealed.load(std::memory_order_relaxed) || !owns_table()) return;
  materialize_all(/*only_inherited=*/false, "fork");
  // To the child's dup2 a parked number is as closed as to its parent's.
  placeholder::unpark();
  let_writers_outlive_us();
}

void end_fork() {
  if (!g_sealed.load(std::memory_order_relaxed) && owns_table()) let_writers_outlive_us();
}

void prepare_clone(std::uint64_t flags) {
  const bool shares_memory = (flags & CLONE_VM) != 0, shares_table = (flags & CLONE_FILES) != 0;
  // A thread like any other.
  if (shares_memory && shares_table) return;
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
  g_leader.store(false, std::memory_order_relaxed);
  cache::FileCache::forget_attaching();
  base::LiftedFdLimit::forget();
  // The files that other threads opened between our preparation and the fork, while the parent's region is still mapped.
  cache::FileCache::forget_fills();
  open_files::forget_pins();
  g_fds.end_busy_rows();
  materialize_all(/*only_inherited=*/false, "fork");
  mappings::forget_after_fork();
  if (g_sidecar != nullptr) keep_sidecar_reachable();
  prefetch::forget_background_threads();
  if (g_sidecar_state.load(std::memory_order_relaxed) != SidecarState::over)
    g_sidecar_state.store(SidecarState::none, std::memory_order_relaxed);
  cache::FileCache* const parents = g_cache.exchange(nullptr, std::memory_order_acq_rel);
  // Another thread of the parent may have opened some since the preparation. To count them is the parent's.
  let_writers_outlive_us();
  if (parents != nullptr) {
    for (std::size_t i = 0; i < std::size(g_parents_devices); ++i)
      g_parents_devices[i] = parents->region().header().devices[i].load(std::memory_order_relaxed);
    parents->abandon();
    keep_reachable(parents);
  }
  const auto was = g_attachment.load(std::memory_order_acquire);
  // A failure is not tried again.
  if (was != Attachment::failed) g_attachment.store(Attachment::none, std::memory_order_release);
}

void before_libc_fork() {
  t_forking = Forking::begun;
  prepare_child();
}

void after_libc_fork() {
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
  if (!g_leader.exchange(false, std::memory_order_acq_rel)) return;
  // The first process of a job may have read nothing itself, and have changed its namespaces for those who have (unshare).
  const bool may_attach = g_config->mode != base::Mode::off && !g_config->prefixes.empty();
  cache::FileCache* const cache = attached_cache() == nullptr && may_attach ? attach(false) : attached_cache();
  if (cache != nullptr) {
    flush_counters();
    cache::write_report(cache->region(), cache->region().own_job(), *g_config, g_job.pid, spelling::has_opened_many());
  } else if (is_active()) {
    cache::write_empty_report(*g_config, g_job.pid, spelling::has_opened_many());
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
  stop_sidecar();
  base::write_kept_lines();
  report();
  cache::FileCache* const cache = attached_cache();
  if (cache != nullptr) {
    flush_counters();
    g_cache.store(nullptr, std::memory_order_release);
    g_attachment.store(Attachment::left, std::memory_order_release);
    cache->detach();
    keep_reachable(cache);
  }
}

void report_if_due(cache::FileCache& cache) {
  base::write_kept_lines();
  const std::uint64_t interval = g_config->stats_interval;
  if (interval == 0) return;
  cache::Region& region = cache.region();
  if (!cache::report_interval_passed(region, region.own_job(), interval)) return;
  const KeepErrno keep;
  cache::write_report(region, region.own_job(), *g_config, g_job.pid);
}

}  // namespace cube::shim::process
