#include "shim/lifecycle/lifecycle.h"

#include "cache/base/log.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/signal_frame.h"
#include "cache/report/write_report.h"
#include "shim/calls/directory/mount_stream.h"
#include "shim/calls/loaded_calls.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/opened_writers.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/region_fd.h"
#include "shim/lifecycle/fork.h"
#include "shim/path/spelling.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"
#include "shim/profile/profile.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::lifecycle {
namespace {

// Completes process::disable().
void end_serving(const char* why) {
  // From now on, this process does not report that its view is in use.
  cache::FileCache* const cache = attachment::attached_cache();
  if (cache != nullptr && process::owns_table()) {
    materialize_all(/*only_inherited=*/false, why);
    cache->region().leave_view();
  }
  own_threads::end_for_good();
  expect_new_fd();
  base::log(base::LogLevel::info, "files opened from now on are read without a cache: {}", why);
}

}  // namespace

void start(const base::Config& config, const base::ProcessId& job, bool speaks) {
  static constexpr process::Upcalls k_upcalls{
      .become_child = become_child,
      .disabled = end_serving,
      .before_attaching = loaded_calls::look_if_due,
      .materialize_directory = mount_stream::materialize_directory};
  process::g_upcalls = &k_upcalls;
  process::g_config = &config;
  process::set_job(job);
  process::g_speaks.store(speaks, std::memory_order_relaxed);
  process::note_owner();
  base::LiftedFdLimit::become_process();
  base::remember_first_thread();
  own_threads::end_with_this_thread();
  process::make_fork_mark();
  process::g_serves_copies.store(
      config.mode == base::Mode::real_files ? process::Copies::yes : process::Copies::no,
      std::memory_order_relaxed);
  // Release. Pairs with the acquire in is_active().
  const bool is_on = config.mode != base::Mode::off && !config.prefixes.empty();
  process::g_tells.store(is_on, std::memory_order_release);
  process::g_active.store(is_on, std::memory_order_release);
  // A shell without the library may have opened these fds for writing (`tool >> file`).
  constexpr int k_shells_fds = 10;
  for (int fd = 0; is_on && fd < k_shells_fds; ++fd) note_inherited_fd(fd);
  own_threads::allow_cluster();
}

void prepare_identity(const char* call) {
  if (process::owns_table()) materialize_all(/*only_inherited=*/false, call);
  materialize_streams();
  attachment::existing_cache();
  cache::Region::begin_leaving_view();
}

void keep_identity() { cache::Region::stay_in_view(); }

void seal() {
  if (process::g_config == nullptr || process::g_sealed.load(std::memory_order_relaxed) ||
      !process::owns_table())
    return;
  materialize_streams();
  process::disable("the process installs a seccomp filter");
  process::g_tells.store(false, std::memory_order_release);
  // Notes that all writers may outlive this process, because later forks will not be noticed.
  let_writers_outlive_us();
  materialize_all(/*only_inherited=*/false, "seccomp");
  region_fd::drop();
  leave();
  // g_sealed is set last, because owns_table() may return false in a sealed process, and the steps
  // above need owns_table().
  process::g_sealed.store(true, std::memory_order_relaxed);
}

namespace {

void report() {
  if (!process::g_speaks.exchange(false, std::memory_order_acq_rel)) return;
  cache::FileCache* const cache = attachment::cache_to_report_by();
  if (cache != nullptr) {
    flush_counters();
    // The job has a cache, so its programs use the spelling of the prefix in the settings. The
    // report has no line about processes that opened nothing below the prefix.
    cache::write_last_report(cache->region(), cache->region().own_job(), *process::g_config);
  } else if (process::is_active()) {
    // There is no cache, so the report cannot say which files were opened.
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
  own_threads::end_for_good(own_threads::Hanging::is_left);
  base::write_kept_lines();
  report();
  flush_counters();
  attachment::leave();
}

}  // namespace cube::shim::lifecycle
