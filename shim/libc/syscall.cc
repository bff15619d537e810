// syscall(). If libc has a function for the system call, the call is forwarded to our export of
// that function (syscall_forward.cc). For any other call, the served files among its fds are
// materialized first.
#include <linux/seccomp.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

#include <cstdarg>
#include <optional>

#include "cache/base/sys.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/past_libc.h"
#include "shim/calls/syscall_table.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/libc/syscall_forward.h"
#include "shim/lifecycle/fork.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/path/fd_path.h"
#include "shim/process/cancellation.h"
#include "shim/process/ended_children.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"
#include "shim/process/user_pointer.h"
#include "shim/profile/profile.h"
#include "shim/threads/own_threads.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

constexpr const char* k_syscall = "syscall";

std::uint64_t clone_flags(long number, const long (&arguments)[6]) {
  if (number == SYS_clone) return static_cast<std::uint64_t>(arguments[0]);
  // The first member of clone3's structure holds the flags. A fork has no flags.
  const auto* const flags = reinterpret_cast<const std::uint64_t*>(arguments[0]);
  return number == SYS_clone3 && !shim::is_bad_pointer(flags, sizeof *flags) ? *flags : 0;
}

// Materializes the served file whose fd the path names (/proc/self/fd/N), for calls on a path that
// are not forwarded.
void materialize_named(long number, const long (&a)[6]) {
  const auto name = [](long path, long dir = AT_FDCWD) {
    const auto* const text = reinterpret_cast<const char*>(path);
    if (!shim::path_filter::is_unmapped(text)) shim::materialize_named(text, static_cast<int>(dir));
  };
  switch (number) {
    case SYS_newfstatat:
    case SYS_statx:
    case SYS_faccessat:
    case SYS_faccessat2:
    case SYS_readlinkat:
    case SYS_name_to_handle_at:
    case SYS_open_tree: return name(a[1], a[0]);
    case SYS_inotify_add_watch: return name(a[1]);
    case SYS_fanotify_mark: return name(a[4], a[3]);
#if defined(SYS_stat)
    case SYS_stat:
    case SYS_lstat:
    case SYS_access:
    case SYS_readlink:
#endif
    case SYS_statfs:
    case SYS_getxattr:
    case SYS_listxattr: return name(a[0]);
    default: break;
  }
}

void before_syscall(const shim::SyscallRow& row, const long (&arguments)[6]) {
  const auto fd_at = [&](int position) { return static_cast<int>(arguments[position]); };
  switch (row.kind) {
    case shim::SyscallKind::one_fd: shim::materialize(fd_at(row.first), k_syscall); break;
    case shim::SyscallKind::two_fds:
      shim::materialize(fd_at(row.first), k_syscall);
      shim::materialize(fd_at(row.second), k_syscall);
      shim::expect_new_fd();
      break;
    case shim::SyscallKind::makes_fd:
      if (row.first >= 0) shim::materialize(fd_at(row.first), k_syscall);
      shim::expect_new_fd();
      break;
    case shim::SyscallKind::closes:
      if (row.number == SYS_close) {
        shim::materialize(fd_at(0), k_syscall);
      } else {
        shim::file_calls::close_range(static_cast<unsigned>(arguments[0]),
                                      static_cast<unsigned>(arguments[1]), fd_at(2));
      }
      break;
    case shim::SyscallKind::forks:
      shim::lifecycle::prepare_clone(clone_flags(row.number, arguments));
      // The call may be a vfork, or make a thread that libc does not know. Afterwards, each check
      // of the fd table's owner costs a getpid.
      shim::lifecycle::expect_shared_memory_child();
      break;
    case shim::SyscallKind::ends:
      if (row.number == SYS_exit_group) {
        shim::lifecycle::leave();
      } else if (cube::base::sys::raw(SYS_gettid) == cube::base::sys::getpid()) {
        shim::own_threads::end_for_good();
      }
      break;
    case shim::SyscallKind::identity:
      shim::lifecycle::prepare_identity(k_syscall);
      shim::process::expect_other_pid_namespaces();
      if (row.number == SYS_unshare) shim::let_writers_outlive_us();
      shim::process::disable("a system call that changes what paths or permissions mean");
      break;
    case shim::SyscallKind::sandbox:
      // Seals the process if the call sets a filter or the strict mode. A call without a filter
      // program only tests whether seccomp exists.
      if (arguments[0] == SECCOMP_SET_MODE_STRICT ||
          (arguments[0] == SECCOMP_SET_MODE_FILTER && arguments[2] != 0))
        shim::lifecycle::seal();
      break;
    case shim::SyscallKind::hands_on:
      if (row.number == SYS_io_uring_enter) shim::past_libc::trust_ring(fd_at(0));
      shim::let_writers_outlive_us();
      [[fallthrough]];
    case shim::SyscallKind::everything:
      shim::materialize_all(/*only_inherited=*/false, k_syscall);
      shim::expect_new_fd();
      break;
    case shim::SyscallKind::unknown:
      // Materializes files only if their fds are among the arguments. If the call gets a served fd
      // from a structure, it fails on the placeholder (EBADF).
      for (int i = 0; i < 6; ++i) shim::materialize(fd_at(i), k_syscall);
      shim::expect_new_fd();
      break;
  }
}

long close_by_syscall(long number, const long (&a)[6]) {
  const int first = static_cast<int>(a[0]);
  if (number == SYS_close) {
    const auto held = shim::file_calls::note_close(first);
    return real::syscall(number, a[0], 0L, 0L, 0L, 0L, 0L);
  }
  const long result = real::syscall(number, a[0], a[1], a[2], 0L, 0L, 0L);
  shim::file_calls::range_is_closed(static_cast<unsigned>(first));
  return result;
}

// Corrects the cache by the kernel's answers to calls that were not forwarded, and notes ended
// children.
void learn_from(long number, const long (&a)[6], long result) {
  using Wants = shim::PathCall::Wants;
  const auto path = [&](int i) { return reinterpret_cast<const char*>(a[i]); };
  const auto number_at = [&](int i) { return static_cast<int>(a[i]); };
  const auto stat = [&](int i) { return reinterpret_cast<const struct ::stat*>(a[i]); };
  const auto is_unfollowed = [&](int i) { return (a[i] & AT_SYMLINK_NOFOLLOW) != 0; };
  const int status = static_cast<int>(result);
  switch (number) {
    case SYS_newfstatat:
      shim::told_stat(status, number_at(0), path(1), is_unfollowed(3), stat(2));
      break;
    case SYS_statx:
      shim::told_statx(status, number_at(0), path(1), is_unfollowed(2),
                       reinterpret_cast<const struct ::statx*>(a[4]));
      break;
    case SYS_readlinkat:
      shim::told_link(result, number_at(0), path(1), path(2), static_cast<size_t>(a[3]));
      break;
    case SYS_faccessat: shim::told(result, number_at(0), path(1), false); break;
    case SYS_faccessat2: shim::told(result, number_at(0), path(1), is_unfollowed(3)); break;
    case SYS_name_to_handle_at:
      shim::told(result, number_at(0), path(1), (a[4] & AT_SYMLINK_FOLLOW) == 0);
      break;
    case SYS_open_tree: shim::told(result, number_at(0), path(1), is_unfollowed(2)); break;
    case SYS_fspick: {
      constexpr long k_symlink_nofollow = 2;  // FSPICK_SYMLINK_NOFOLLOW
      shim::told(result, number_at(0), path(1), (a[2] & k_symlink_nofollow) != 0);
      break;
    }
    case SYS_chroot: shim::told(result, {.path = path(0), .wants = Wants::directory}); break;
    case shim::k_getxattrat:
    case shim::k_listxattrat: shim::told(result, number_at(0), path(1), is_unfollowed(2)); break;
    case shim::k_file_getattr: shim::told(result, number_at(0), path(1), is_unfollowed(4)); break;
    case SYS_inotify_add_watch:
      shim::told(result, AT_FDCWD, path(1), (a[2] & IN_DONT_FOLLOW) != 0);
      break;
    case SYS_fanotify_mark:
      shim::told(result, number_at(3), path(4), (a[1] & FAN_MARK_DONT_FOLLOW) != 0);
      break;
    case SYS_statfs:
    case SYS_getxattr:
    case SYS_listxattr: shim::told(result, AT_FDCWD, path(0), false); break;
    case SYS_lgetxattr:
    case SYS_llistxattr: shim::told(result, AT_FDCWD, path(0), true); break;
    case SYS_wait4:
      if (a[1] != 0 || result <= 0) {
        cube::shim::ended_children::note_waited(
            result, result > 0 ? *reinterpret_cast<const int*>(a[1]) : 0);
      } else {
        cube::shim::ended_children::note_ended();
      }
      break;
    case SYS_waitid:
      if (a[2] != 0 || result < 0) {
        cube::shim::ended_children::note_waited(
            result, result < 0 ? siginfo_t{} : *reinterpret_cast<const siginfo_t*>(a[2]));
      } else {
        cube::shim::ended_children::note_ended();
      }
      break;
#if defined(SYS_stat)
    case SYS_stat: shim::told_stat(status, AT_FDCWD, path(0), false, stat(1)); break;
    case SYS_lstat: shim::told_stat(status, AT_FDCWD, path(0), true, stat(1)); break;
    case SYS_access: shim::told(result, AT_FDCWD, path(0), false); break;
    case SYS_readlink:
      shim::told_link(result, AT_FDCWD, path(0), path(1), static_cast<size_t>(a[2]));
      break;
#endif
    default: break;
  }
}

// True if libc's function for this call is a cancellation point.
bool may_be_cancelled_in_libc(long number) {
#if defined(SYS_open)
  if (number == SYS_open || number == SYS_creat) return true;
#endif
  return number == SYS_openat || number == SYS_openat2 || number == SYS_fallocate ||
         number == SYS_sendmsg || number == SYS_recvmsg || number == SYS_sendmmsg ||
         number == SYS_recvmmsg;
}

}  // namespace

long export_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  long forwarded = 0;
  if (shim::process::tells()) {
    // syscall() is not a cancellation point. But a function of libc to which it forwards a call may
    // be a cancellation point, so disable cancellation for such calls.
    const bool is_point = may_be_cancelled_in_libc(number);
    const std::optional<shim::NoCancel> no_cancel =
        is_point ? std::optional<shim::NoCancel>(std::in_place) : std::nullopt;
    // If the caller is a function of a library after ours, our export has called this function and
    // handles the consequences. Our exports of mmap, munmap and mremap never call such a function.
    const bool is_own_way = real::is_behind(__builtin_return_address(0)) && number != SYS_mmap &&
                            number != SYS_munmap && number != SYS_mremap;
    if (!is_own_way && shim::forward_syscall(number, a, forwarded)) return forwarded;
  }
  const bool concerns_us = shim::process::tells() || shim::g_fds.serves_any() ||
                           shim::profile::is_on() || number == SYS_seccomp;
  const shim::SyscallRow* const row = concerns_us ? shim::syscall_row_of(number) : nullptr;
  if (row != nullptr && shim::process::owns_table()) before_syscall(*row, a);
  if (shim::process::is_active()) materialize_named(number, a);
  if (row != nullptr && row->kind == shim::SyscallKind::closes) return close_by_syscall(number, a);
  const long result = real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (shim::process::is_active()) learn_from(number, a, result);
  // Other processes may have cached files during the call. This is not in learn_from(), because
  // before_syscall() has already disabled this process.
  if (number == SYS_pivot_root && result == 0 && shim::process::tells()) shim::note_any_change();
  if (row != nullptr && row->kind == shim::SyscallKind::makes_fd)
    shim::noted(static_cast<int>(result));
  return result;
}
