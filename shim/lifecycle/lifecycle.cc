#include "shim/lifecycle/lifecycle.h"

#include "cache/base/log.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/signal_frame.h"
#include "cache/report/write_report.h"
#include "shim/calls/directory/listed_directory.h"
#include "shim/calls/loaded_calls.h"
#include "shim/calls/map/mappings.h"
#include "shim/calls/new_fds.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/fd/region_fd.h"
#include "shim/path/spelling.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"
#include "shim/profile/profile.h"
#include "shim/threads/background.h"

namespace cube::shim::lifecycle {
namespace {

constinit std::atomic<bool> g_speaks{false};

// Completes process::disable().
void end_serving(const char* why) {
  // From now on, a living process is no proof that the namespaces of its view live.
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache != nullptr && process::owns_table()) cache->region().leave_view();
  background::end_for_good();
  expect_new_fd();
  base::log(base::LogLevel::info, "files opened from now on are read without a cache: {}", why);
}

}  // namespace

void start(const base::Config& config, const base::ProcessId& job, bool speaks) {
  static constexpr process::Upcalls k_upcalls{
      .become_child = become_child,
      .disabled = end_serving,
      .before_attaching = loaded_calls::look_if_due,
      .materialize_directory = listed_directory::materialize_directory};
  process::g_upcalls = &k_upcalls;
  process::g_config = &config;
  process::set_job(job);
  g_speaks.store(speaks, std::memory_order_relaxed);
  process::note_owner();
  base::remember_first_thread();
  background::end_with_this_thread();
  process::make_fork_mark();
  process::g_serves_copies.store(
      config.mode == base::Mode::real_files ? process::Copies::yes : process::Copies::no,
      std::memory_order_relaxed);
  // Release: pairs with the acquire in is_active.
  const bool is_on = config.mode != base::Mode::off && !config.prefixes.empty();
  process::g_tells.store(is_on, std::memory_order_release);
  process::g_active.store(is_on, std::memory_order_release);
  background::allow_cluster();
}

void prepare_identity() {
  materialize_streams();
  attachment::existing_cache();
}

void seal() {
  if (process::g_config == nullptr || !process::owns_table() || process::g_sealed.exchange(true))
    return;
  materialize_streams();
  process::disable("the process puts a seccomp filter on");
  process::g_tells.store(false, std::memory_order_release);
  // Later forks go unseen.
  let_writers_outlive_us();
  materialize_all(/*only_inherited=*/false, "seccomp");
  region_fd::drop();
  leave();
}

void expect_shared_memory_child() {
  process::g_memory_is_shared.store(true, std::memory_order_release);
}

void prepare_child() {
  if (process::g_sealed.load(std::memory_order_relaxed) || !process::owns_table()) return;
  materialize_all(/*only_inherited=*/false, "fork");
  // A parked fd must be as closed to the child's dup2 as to its parent's.
  placeholder::unpark();
  let_writers_outlive_us();
}

void prepare_vforked_child() {
  attachment::existing_cache();
  prepare_child();
  process::t_vforked = true;
}

void end_fork() {
  if (!process::g_sealed.load(std::memory_order_relaxed) && process::owns_table())
    let_writers_outlive_us();
}

void prepare_clone(std::uint64_t flags) {
  const bool shares_memory = (flags & CLONE_VM) != 0, shares_table = (flags & CLONE_FILES) != 0;
  // This is a thread like any other.
  if (shares_memory && shares_table) return;
  if (shares_memory) attachment::existing_cache();
  prepare_child();
  // There would be one fd table of the kernel and two of ours, or two tables of the kernel in one
  // process, which getpid does not tell apart.
  if (shares_table || (flags & CLONE_THREAD) != 0)
    process::disable("a clone that shares fds without memory, or is a thread without the fds");
}

void become_child() {
  if (process::g_sealed.load(std::memory_order_relaxed)) return;
  process::note_owner();
  process::t_vforked = false;
  g_speaks.store(false, std::memory_order_relaxed);
  profile::become_child();
  cache::FileCache::forget_attaching();
  base::LiftedFdLimit::forget();
  // Covers files that other threads opened between prepare_child() and the fork, while the parent's
  // region is still mapped.
  cache::FileCache::forget_fills();
  open_files::forget_pins();
  g_fds.end_busy_rows();
  materialize_all(/*only_inherited=*/false, "fork");
  mappings::forget_after_fork();
  background::become_child();
  attachment::become_child();
  // Covers writers that another thread of the parent opened after prepare_child(). The parent
  // counts them.
  let_writers_outlive_us();
}

void before_libc_fork() {
  process::t_forking = process::Forking::begun;
  profile::before_fork();
  prepare_child();
}

void after_libc_fork() {
  profile::after_fork();
  end_fork();
  process::t_forking = process::Forking::no;
}

void in_libc_fork_child() {
  // The call of another handler may have been the first to notice that this is a child.
  if (process::t_forking != process::Forking::is_child) become_child();
  process::t_forking = process::Forking::no;
}

namespace {

void report() {
  if (!g_speaks.exchange(false, std::memory_order_acq_rel)) return;
  cache::FileCache* const cache = attachment::cache_to_report_by();
  if (cache != nullptr) {
    flush_counters();
    cache::write_last_report(cache->region(), cache->region().own_job(), *process::g_config,
                             spelling::has_opened_many());
  } else if (process::is_active()) {
    // Without a cache it is unknown what was opened.
    cache::write_empty_report(*process::g_config, process::job().pid,
                              spelling::has_opened_many() && !attachment::has_failed());
  }
}

}  // namespace

void stderr_ends() {
  if (process::g_config == nullptr || process::g_config->stats != "stderr" ||
      !process::owns_table())
    return;
  const KeepErrno keep;
  report();
}

void leave() {
  if (process::g_config == nullptr || !process::owns_table()) return;
  const KeepErrno keep;
  profile::leave();
  background::stop();
  base::write_kept_lines();
  report();
  flush_counters();
  attachment::leave();
}

}  // namespace cube::shim::lifecycle
