#include "shim/lifecycle/fork.h"

#include <sched.h>

#include "cache/base/process/lifted_fd_limit.h"
#include "cache/region/posix_locks.h"
#include "shim/calls/map/mappings.h"
#include "shim/fd/fd_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/process/attachment.h"
#include "shim/process/process.h"
#include "shim/profile/profile.h"
#include "shim/threads/own_threads.h"

namespace cube::shim::lifecycle {

void expect_shared_memory_child() {
  process::g_memory_is_shared.store(true, std::memory_order_release);
}

void prepare_child() {
  if (process::g_sealed.load(std::memory_order_relaxed) || !process::owns_table()) return;
  materialize_for_child(ForkSide::parent);
  // Closes the parked fds, which the program has closed. Otherwise a dup2 of such an fd would
  // succeed in the child.
  placeholder::unpark();
  let_writers_outlive_us();
}

void prepare_vforked_child() {
  const cache::Origins* const origins = process::origins();
  // The child cannot attach, but may ask the gateway for the program that it executes. So attach
  // now.
  if (origins != nullptr && !origins->buckets().empty()) attachment::cache();
  attachment::existing_cache();
  prepare_child();
  process::expect_vfork();
}

void end_fork() {
  if (!process::g_sealed.load(std::memory_order_relaxed) && process::owns_table())
    let_writers_outlive_us();
}

void prepare_clone(std::uint64_t flags) {
  const bool shares_memory = (flags & CLONE_VM) != 0, shares_table = (flags & CLONE_FILES) != 0;
  // This clone makes an ordinary thread.
  if (shares_memory && shares_table) return;
  if ((flags & CLONE_NEWPID) != 0) process::expect_other_pid_namespaces();
  if (shares_memory) attachment::existing_cache();
  prepare_child();
  // Serving must end. Otherwise, two tables of the shim would describe the same fds, or one process
  // would have two sets of fds, and owns_table() cannot distinguish them by getpid.
  if (shares_table || (flags & CLONE_THREAD) != 0)
    process::disable("a clone that shares fds without memory, or is a thread without the fds");
}

void become_child() {
  if (process::g_sealed.load(std::memory_order_relaxed)) return;
  process::note_owner();
  process::t_vforked = false;
  process::g_speaks.store(false, std::memory_order_relaxed);
  profile::become_child();
  cache::FileCache::forget_attaching();
  cache::Region::forget_leaving();
  cache::PosixLocks::become_child();
  base::LiftedFdLimit::become_process();
  // Other threads may have opened files between prepare_child() and the fork. Handles these files
  // now, while the parent's region is still mapped.
  cache::FileCache::forget_fills();
  open_files::forget_pins();
  g_fds.end_busy_rows();
  materialize_for_child(ForkSide::child);
  keep_own_copies();
  mappings::forget_after_fork();
  own_threads::become_child();
  attachment::become_child();
  // Another thread of the parent may have opened files for writing after prepare_child(). The child
  // has inherited them.
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
  // A call in an earlier handler may already have noticed that this process is a child.
  if (process::t_forking != process::Forking::is_child) become_child();
  process::t_forking = process::Forking::no;
}

}  // namespace cube::shim::lifecycle
