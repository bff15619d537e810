#include "shim/process.h"

#include <algorithm>

#include "cache/base/log.h"
#include "cache/job_report.h"
#include "shim/c_result.h"
#include "shim/fd_table.h"
#include "shim/mappings.h"
#include "shim/materialize.h"
#include "shim/new_fds.h"

namespace cube::shim::process {

constinit std::atomic<bool> g_active{false};
constinit thread_local bool t_vforked [[gnu::tls_model("initial-exec")]] = false;
constinit std::atomic<bool> g_memory_is_shared{false};
constinit std::atomic<const std::uint32_t*> g_fork_mark{nullptr};

namespace {

namespace sys = base::sys;

enum class Attachment : int { none, busy, attached, failed, left };

constinit const base::Config* g_config = nullptr;
constinit base::ProcessId g_job{};
constinit std::atomic<bool> g_leader{false};
constinit std::atomic<int> g_owner{0};
constinit std::atomic<Attachment> g_attachment{Attachment::none};
constinit std::atomic<cache::FileCache*> g_cache{nullptr};

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
  make_fork_mark();
  g_active.store(config.mode != base::Mode::off && !config.prefixes.empty(), std::memory_order_release);
}

void disable(const char* why) {
  if (!g_active.exchange(false, std::memory_order_acq_rel)) return;
  expect_new_fd();
  base::log(base::LogLevel::info, "files opened from now on are read without a cache: {}", why);
}

bool owns_table_slow() {
  const std::uint32_t* const mark = g_fork_mark.load(std::memory_order_relaxed);
  if (mark != nullptr && *mark == 0) {
    // A fork that did not come by us. Its served files are still pinned by the parent: make them real, then start anew.
    *const_cast<std::uint32_t*>(mark) = 1;
    g_owner.store(sys::getpid(), std::memory_order_relaxed);
    materialize_all();
    become_child();
    return true;
  }
  if (sys::getpid() != g_owner.load(std::memory_order_relaxed)) return false;
  t_vforked = false;
  return true;
}

const base::Config& config() { return *g_config; }

cache::FileCache* attached_cache() { return g_cache.load(std::memory_order_acquire); }

cache::FileCache* cache() {
  cache::FileCache* const cache = attached_cache();
  return cache != nullptr ? cache : attach(true);
}

cache::FileCache* existing_cache() {
  cache::FileCache* const cache = attached_cache();
  return cache != nullptr ? cache : attach(false);
}

void expect_vforked_child() { t_vforked = true; }
void expect_shared_memory_child() { g_memory_is_shared.store(true, std::memory_order_release); }

void prepare_child() {
  if (!owns_table()) return;
  materialize_all();
  let_writers_outlive_us();
}

void become_child() {
  g_owner.store(sys::getpid(), std::memory_order_relaxed);
  if (auto* const mark = const_cast<std::uint32_t*>(g_fork_mark.load(std::memory_order_relaxed)); mark != nullptr) *mark = 1;
  t_vforked = false;
  g_leader.store(false, std::memory_order_relaxed);
  // What other threads opened between our preparation and the fork, while the parent's region is still mapped.
  open_files::forget_pins();
  g_fds.end_busy_rows();
  materialize_all();
  mappings::forget_after_fork();
  if (cache::FileCache* const parents = g_cache.exchange(nullptr, std::memory_order_acq_rel); parents != nullptr)
    parents->abandon();
  const auto was = g_attachment.load(std::memory_order_acquire);
  // A failure is not tried again.
  if (was != Attachment::failed) g_attachment.store(Attachment::none, std::memory_order_release);
}

void leave() {
  if (g_config == nullptr || !owns_table()) return;
  const KeepErrno keep;
  const bool reports = g_leader.exchange(false, std::memory_order_acq_rel);
  cache::FileCache* cache = attached_cache();
  // The first process of a job may have read nothing itself.
  if (cache == nullptr && reports && is_active()) cache = attach(false);
  if (cache != nullptr) {
    cache::Region& region = cache->region();
    flush_counters();
    if (reports) cache::write_report(region, region.own_job(), *g_config, g_job.pid);
    g_cache.store(nullptr, std::memory_order_release);
    g_attachment.store(Attachment::left, std::memory_order_release);
    cache->detach();
  } else if (reports && is_active()) {
    cache::write_empty_report(*g_config, g_job.pid);
  }
}

void report_if_due(cache::FileCache& cache) {
  const std::uint64_t interval = g_config->stats_interval;
  if (interval == 0) return;
  cache::Region& region = cache.region();
  if (!cache::report_interval_passed(region, region.own_job(), interval)) return;
  const KeepErrno keep;
  cache::write_report(region, region.own_job(), *g_config, g_job.pid);
}

}  // namespace cube::shim::process
