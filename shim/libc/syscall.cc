// syscall(): a system call by number means for us what libc's function of that name means. For all
// others, any served file among its fds is materialized first.
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <optional>

#include "cache/base/memory/kernel_page.h"
#include "cache/base/sys.h"
#include "shim/calls/file_calls.h"
#include "shim/calls/locks.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/open_plan.h"
#include "shim/calls/past_libc.h"
#include "shim/calls/syscall_table.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/libc/exports.h"
#include "shim/libc/map.h"
#include "shim/lifecycle/fork.h"
#include "shim/lifecycle/lifecycle.h"
#include "shim/process/c_result.h"
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
  // The flags are the first member of clone3's structure. A fork has none.
  const auto* const flags = reinterpret_cast<const std::uint64_t*>(arguments[0]);
  return number == SYS_clone3 && !shim::is_bad_pointer(flags, sizeof *flags) ? *flags : 0;
}

void before_syscall(const shim::SyscallRow& row, const long (&arguments)[6]) {
  const auto fd_at = [&](int position) { return static_cast<int>(arguments[position]); };
  switch (row.kind) {
    case shim::SyscallKind::one_fd:
      shim::materialize(fd_at(row.first), k_syscall);
      if (row.number == SYS_execveat) shim::let_inherited_writers_outlive_us();
      break;
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
      // It may be a vfork, or a thread that libc does not know; from now on, each check of the fd
      // table's owner costs a getpid.
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
      shim::materialize_all(/*only_inherited=*/false, k_syscall);
      shim::lifecycle::prepare_identity();
      if (row.number == SYS_unshare) shim::let_writers_outlive_us();
      shim::process::disable("a system call that changes what paths or permissions mean");
      break;
    case shim::SyscallKind::sandbox:
      // Seals if the call sets a filter, or the strict mode. Without a filter's program, the call
      // only asks whether seccomp exists.
      if (arguments[0] == SECCOMP_SET_MODE_STRICT ||
          (arguments[0] == SECCOMP_SET_MODE_FILTER && arguments[2] != 0))
        shim::lifecycle::seal();
      break;
    case shim::SyscallKind::limits: shim::expect_new_fd(); break;
    case shim::SyscallKind::hands_on: shim::let_writers_outlive_us(); [[fallthrough]];
    case shim::SyscallKind::everything:
      shim::materialize_all(/*only_inherited=*/false, k_syscall);
      shim::expect_new_fd();
      break;
    case shim::SyscallKind::unknown:
      // The call concerns no file except those whose fds it is given. An fd that it takes from a
      // structure is a placeholder: EBADF.
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

// Planned with a flag that is never served, because only the kernel understands the requests of
// openat2 that openat lacks.
long open_by_how(const long (&a)[6]) {
  const auto* const how = reinterpret_cast<const ::open_how*>(a[2]);
  const bool known =
      !shim::is_bad_pointer(how, sizeof *how) && a[3] >= static_cast<long>(sizeof *how);
  shim::materialize(static_cast<int>(a[0]), "openat2");
  const auto* path = reinterpret_cast<const char*>(a[1]);
  // The directory is the root of such a path.
  if (known && (how->resolve & RESOLVE_IN_ROOT) != 0 &&
      shim::path_filter::is_readable_pointer(path))
    path = path[std::strspn(path, "/")] == '\0' ? "." : path + std::strspn(path, "/");
  shim::OpenPlan plan(static_cast<int>(a[0]), path,
                      known ? static_cast<int>(how->flags) | O_NOATIME : O_RDONLY | O_NOATIME);
  return plan.note(static_cast<int>(real::syscall(SYS_openat2, a[0], a[1], a[2], a[3], 0L, 0L)));
}

// Changes the subject of (dir, path), by a call that libc has no function for.
long change(long number, const long (&a)[6], int dir, long path, shim::NameChange::Of of) {
  const auto* const name = reinterpret_cast<const char*>(path);
  if (shim::path_filter::is_unmapped(name))
    return real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (shim::unmounted_paths::is_read_only(dir, name)) return shim::to_c(-EROFS);
  shim::NameChange change(dir, name, of);
  const shim::Passage before = shim::passage_of(dir, name);
  const long result = real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (result == 0) change.commit(before);
  return shim::told_of_change(result, dir, name, of);
}

// Answers cachestat. All bytes of a served file are in memory. The program does not read the pages
// that the kernel may have of it.
long cache_of_file(const long (&a)[6]) {
  struct RangeArguments {
    std::uint64_t at, length;
  };
  struct Pages {
    std::uint64_t cached = 0, dirty = 0, under_writeback = 0, evicted = 0, evicted_recently = 0;
  };
  const int fd = static_cast<int>(a[0]);
  shim::OpenFileRef file = shim::g_fds.acquire(fd);
  if (file && !file->is_current()) {
    file.reset();
    shim::materialize(fd, "cachestat");
  }
  const int before = errno;
  const long result = real::syscall(shim::k_cachestat, a[0], a[1], a[2], a[3], 0L, 0L);
  // The kernel refused the placeholder, so it has this call, and no filter forbids it.
  if (!file || file->is_copy() || result == 0 || errno != EBADF) return result;
  const auto* const range = reinterpret_cast<const RangeArguments*>(a[1]);
  auto* const pages = reinterpret_cast<Pages*>(a[2]);
  if (shim::is_bad_pointer(range, sizeof *range)) return shim::to_c(-EFAULT);
  if (a[3] != 0) return shim::to_c(-EINVAL);
  if (shim::is_bad_pointer(pages, sizeof *pages)) return shim::to_c(-EFAULT);
  const std::uint64_t page_bytes = cube::base::kernel_page();
  const std::uint64_t in_file = (file->size + page_bytes - 1) / page_bytes;
  const std::uint64_t first = range->at / page_bytes;
  std::uint64_t end = 0;
  if (range->length == 0 || __builtin_add_overflow(range->at, range->length - 1, &end))
    end = UINT64_MAX;
  const std::uint64_t last = std::min(end / page_bytes + 1, in_file);
  *pages = {.cached = first < last ? last - first : 0};
  errno = before;
  file->count(0);
  return 0;
}

// With IORING_SETUP_SQPOLL, a kernel thread takes requests without a system call that we could
// intercept. For any other ring, io_uring_enter is such a call.
long set_up_ring(const long (&a)[6]) {
  const auto* const parameters = reinterpret_cast<const ::io_uring_params*>(a[1]);
  const bool polls = !shim::is_bad_pointer(parameters, sizeof *parameters) &&
                     (parameters->flags & IORING_SETUP_SQPOLL) != 0;
  shim::materialize_all(/*only_inherited=*/false, k_syscall);
  shim::expect_new_fd();
  const auto call = [&] { return real::syscall(SYS_io_uring_setup, a[0], a[1], 0L, 0L, 0L, 0L); };
  return shim::noted(
      static_cast<int>(polls ? shim::past_libc::with_reader("a kernel thread", call) : call()));
}

// Calls that name files mean what libc's functions of that name mean, and our exports know the
// consequences.
bool forward(long number, const long (&a)[6], long& result) {
  const auto path = [&](int i) { return reinterpret_cast<const char*>(a[i]); };
  const auto number_at = [&](int i) { return static_cast<int>(a[i]); };
  const auto mode = [&](int i) { return static_cast<mode_t>(a[i]); };
  const auto file_by = [](long flags) {
    return shim::NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0);
  };
  const auto times = [&](int i) { return reinterpret_cast<const struct ::timespec*>(a[i]); };
  switch (number) {
    case shim::k_cachestat: result = cache_of_file(a); return true;
    case shim::k_fchmodat2:
      result = change(number, a, number_at(0), a[1], file_by(a[3]));
      return true;
    case shim::k_setxattrat:
    case shim::k_removexattrat:
      result = change(number, a, number_at(0), a[1], file_by(a[2]));
      return true;
    case shim::k_file_setattr:
      result = change(number, a, number_at(0), a[1], file_by(a[4]));
      return true;
    case SYS_move_mount:
      result = change(number, a, number_at(2), a[3], shim::NameChange::Of::mount_point);
      return true;
    case SYS_mount:
      result = export_mount(path(0), path(1), path(2), static_cast<unsigned long>(a[3]), path(4));
      return true;
    case SYS_umount2: result = export_umount2(path(0), number_at(1)); return true;
    case SYS_openat2: result = open_by_how(a); return true;
    case SYS_io_uring_setup: result = set_up_ring(a); return true;
    case SYS_chdir: result = export_chdir(path(0)); return true;
    case SYS_fchdir: result = export_fchdir(number_at(0)); return true;
    case SYS_ioctl:
      result = export_ioctl(number_at(0), static_cast<unsigned long>(a[1]),
                            reinterpret_cast<void*>(a[2]));
      return true;
    case SYS_fcntl:
      if (a[1] != F_DUPFD && a[1] != F_DUPFD_CLOEXEC && !shim::locks::is_lock(number_at(1)))
        return false;
      result = export_fcntl(number_at(0), number_at(1), a[2]);
      return true;
    case SYS_flock: result = export_flock(number_at(0), number_at(1)); return true;
    case SYS_open_by_handle_at:
      result = export_open_by_handle_at(number_at(0), reinterpret_cast<struct ::file_handle*>(a[1]),
                                        number_at(2));
      return true;
    case SYS_sendmsg:
      result = export_sendmsg(number_at(0), reinterpret_cast<const struct ::msghdr*>(a[1]),
                              number_at(2));
      return true;
    case SYS_recvmsg:
      result = export_recvmsg(number_at(0), reinterpret_cast<struct ::msghdr*>(a[1]), number_at(2));
      return true;
    case SYS_sendmmsg:
      result = export_sendmmsg(number_at(0), reinterpret_cast<struct ::mmsghdr*>(a[1]),
                               static_cast<unsigned>(a[2]), number_at(3));
      return true;
    case SYS_recvmmsg:
      result = export_recvmmsg(number_at(0), reinterpret_cast<struct ::mmsghdr*>(a[1]),
                               static_cast<unsigned>(a[2]), number_at(3),
                               reinterpret_cast<struct ::timespec*>(a[4]));
      return true;
    case SYS_pidfd_getfd:
      result = export_pidfd_getfd(number_at(0), number_at(1), static_cast<unsigned>(a[2]));
      return true;
    case SYS_getdents64:
      if (shim::g_fds.kind(number_at(0)) != shim::RowKind::served_directory) return false;
      result =
          export_getdents64(number_at(0), reinterpret_cast<void*>(a[1]), static_cast<size_t>(a[2]));
      return true;
    case SYS_prctl:
      if (a[0] != PR_SET_SECCOMP) return false;
      result = export_prctl(number_at(0), a[1], a[2], a[3], a[4]);
      return true;
    case SYS_setxattr:
      result = export_setxattr(path(0), path(1), path(2), static_cast<size_t>(a[3]), number_at(4));
      return true;
    case SYS_lsetxattr:
      result = export_lsetxattr(path(0), path(1), path(2), static_cast<size_t>(a[3]), number_at(4));
      return true;
    case SYS_fsetxattr:
      result =
          export_fsetxattr(number_at(0), path(1), path(2), static_cast<size_t>(a[3]), number_at(4));
      return true;
    case SYS_removexattr: result = export_removexattr(path(0), path(1)); return true;
    case SYS_mmap: result = shim::map_by_number(a); return true;
    case SYS_munmap: result = shim::unmap_by_number(a); return true;
    case SYS_mremap: result = shim::remap_by_number(a); return true;
    case SYS_mlockall: result = shim::lock_all_by_number(a); return true;
    case SYS_lremovexattr: result = export_lremovexattr(path(0), path(1)); return true;
    case SYS_fremovexattr: result = export_fremovexattr(number_at(0), path(1)); return true;
    case SYS_fchmod: result = export_fchmod(number_at(0), mode(1)); return true;
    case SYS_fchown:
      result = export_fchown(number_at(0), static_cast<uid_t>(a[1]), static_cast<gid_t>(a[2]));
      return true;
    case SYS_dup: result = export_dup(number_at(0)); return true;
    case SYS_dup3: result = export_dup3(number_at(0), number_at(1), number_at(2)); return true;
    case SYS_openat:
      result = export_openat(number_at(0), path(1), number_at(2), mode(3));
      return true;
    case SYS_truncate: result = export_truncate(path(0), a[1]); return true;
    case SYS_unlinkat: result = export_unlinkat(number_at(0), path(1), number_at(2)); return true;
    case SYS_bind:
      result = export_bind(number_at(0), reinterpret_cast<const struct ::sockaddr*>(a[1]),
                           static_cast<socklen_t>(a[2]));
      return true;
    case SYS_mkdirat: result = export_mkdirat(number_at(0), path(1), mode(2)); return true;
    case SYS_mknodat:
      result = export_mknodat(number_at(0), path(1), mode(2), static_cast<dev_t>(a[3]));
      return true;
    case SYS_symlinkat: result = export_symlinkat(path(0), number_at(1), path(2)); return true;
    case SYS_linkat:
      result = export_linkat(number_at(0), path(1), number_at(2), path(3), number_at(4));
      return true;
    case SYS_renameat2:
      result = export_renameat2(number_at(0), path(1), number_at(2), path(3),
                                static_cast<unsigned>(a[4]));
      return true;
    case SYS_fchmodat: result = export_fchmodat(number_at(0), path(1), mode(2), 0); return true;
    case SYS_fchownat:
      result = export_fchownat(number_at(0), path(1), static_cast<uid_t>(a[2]),
                               static_cast<gid_t>(a[3]), number_at(4));
      return true;
    case SYS_utimensat:
      // Without a path it is futimens, which libc's utimensat refuses.
      if (path(1) == nullptr && (a[3] != 0 || number_at(0) < 0)) return false;
      result = path(1) == nullptr ? export_futimens(number_at(0), times(2))
                                  : export_utimensat(number_at(0), path(1), times(2), number_at(3));
      return true;
#if defined(SYS_open)
    case SYS_open: result = export_open(path(0), number_at(1), mode(2)); return true;
    case SYS_creat: result = export_creat(path(0), mode(1)); return true;
    case SYS_unlink: result = export_unlink(path(0)); return true;
    case SYS_mkdir: result = export_mkdir(path(0), mode(1)); return true;
    case SYS_rmdir: result = export_rmdir(path(0)); return true;
    case SYS_mknod: result = export_mknod(path(0), mode(1), static_cast<dev_t>(a[2])); return true;
    case SYS_symlink: result = export_symlink(path(0), path(1)); return true;
    case SYS_link: result = export_link(path(0), path(1)); return true;
    case SYS_rename: result = export_rename(path(0), path(1)); return true;
    case SYS_renameat:
      result = export_renameat(number_at(0), path(1), number_at(2), path(3));
      return true;
    case SYS_dup2: result = export_dup2(number_at(0), number_at(1)); return true;
    case SYS_utime:
      result = export_utime(path(0), reinterpret_cast<const struct ::utimbuf*>(a[1]));
      return true;
    case SYS_utimes:
      result = export_utimes(path(0), reinterpret_cast<const struct ::timeval*>(a[1]));
      return true;
    case SYS_futimesat:
      result =
          export_futimesat(number_at(0), path(1), reinterpret_cast<const struct ::timeval*>(a[2]));
      return true;
    case SYS_chmod: result = export_chmod(path(0), mode(1)); return true;
    case SYS_chown:
      result = export_chown(path(0), static_cast<uid_t>(a[1]), static_cast<gid_t>(a[2]));
      return true;
    case SYS_lchown:
      result = export_lchown(path(0), static_cast<uid_t>(a[1]), static_cast<gid_t>(a[2]));
      return true;
#endif
    default: return false;
  }
}

// Queries about our paths and their fds, of which the kernel knows nothing: only our exports of
// libc's functions can answer them.
bool forward_to_names(long number, const long (&a)[6], long& result) {
  const auto path = [&](int i) { return reinterpret_cast<const char*>(a[i]); };
  const auto number_at = [&](int i) { return static_cast<int>(a[i]); };
  const auto stat = [&](int i) { return reinterpret_cast<struct ::stat*>(a[i]); };
  const auto text = [&](int i) { return reinterpret_cast<char*>(a[i]); };
  if (shim::process::origin_metadata() == nullptr) return false;
  switch (number) {
    case SYS_fstat:
      if (shim::g_fds.kind(number_at(0)) != shim::RowKind::served_directory) return false;
      result = export_fstat(number_at(0), stat(1));
      return true;
    case SYS_lseek:
      if (shim::g_fds.kind(number_at(0)) != shim::RowKind::served_directory) return false;
      result = export_lseek(number_at(0), a[1], number_at(2));
      return true;
    case SYS_newfstatat:
      result = export_fstatat(number_at(0), path(1), stat(2), number_at(3));
      return true;
    case SYS_statx:
      result = export_statx(number_at(0), path(1), number_at(2), static_cast<unsigned>(a[3]),
                            reinterpret_cast<struct ::statx*>(a[4]));
      return true;
    case SYS_faccessat:
      result = export_faccessat(number_at(0), path(1), number_at(2), 0);
      return true;
    case SYS_faccessat2:
      result = export_faccessat(number_at(0), path(1), number_at(2), number_at(3));
      return true;
    case SYS_readlinkat:
      result = export_readlinkat(number_at(0), path(1), text(2), static_cast<size_t>(a[3]));
      return true;
#if defined(SYS_stat)
    case SYS_stat: result = export_stat(path(0), stat(1)); return true;
    case SYS_lstat: result = export_lstat(path(0), stat(1)); return true;
    case SYS_access: result = export_access(path(0), number_at(1)); return true;
    case SYS_readlink:
      result = export_readlink(path(0), text(1), static_cast<size_t>(a[2]));
      return true;
#endif
    default: return false;
  }
}

// Learns about names and children from the kernel's answers to calls that were not forwarded.
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
    case shim::k_listxattrat:
    case shim::k_mount_setattr: shim::told(result, number_at(0), path(1), is_unfollowed(2)); break;
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
    case SYS_execve: shim::told(result, {.path = path(0), .has_other_reasons = true}); break;
    case SYS_execveat:
      shim::told(result, {.dir = number_at(0),
                          .path = path(1),
                          .wants = Wants::name,
                          .no_follow = is_unfollowed(4),
                          .has_other_reasons = true});
      break;
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

// libc's functions for these are cancellation points.
bool may_be_cancelled_in_libc(long number) {
#if defined(SYS_open)
  if (number == SYS_open || number == SYS_creat) return true;
#endif
  return number == SYS_openat || number == SYS_openat2 || number == SYS_sendmsg ||
         number == SYS_recvmsg || number == SYS_sendmmsg || number == SYS_recvmmsg;
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
    // Unlike the calls of libc that some are forwarded to, syscall is not a cancellation point.
    const bool is_point = may_be_cancelled_in_libc(number);
    const std::optional<shim::NoCancel> no_cancel =
        is_point ? std::optional<shim::NoCancel>(std::in_place) : std::nullopt;
    // If the caller is a function of a library behind ours, our export has called it and knows the
    // consequences. Our mmap and its kin never call such a function.
    const bool is_own_way = real::is_behind(__builtin_return_address(0)) && number != SYS_mmap &&
                            number != SYS_munmap && number != SYS_mremap;
    if (!is_own_way && (forward(number, a, forwarded) || forward_to_names(number, a, forwarded)))
      return forwarded;
  }
  const bool concerns_us = shim::process::tells() || shim::g_fds.serves_any() ||
                           shim::profile::is_on() || number == SYS_seccomp;
  const shim::SyscallRow* const row = concerns_us ? shim::syscall_row_of(number) : nullptr;
  if (row != nullptr && shim::process::owns_table()) before_syscall(*row, a);
  if (row != nullptr && row->kind == shim::SyscallKind::closes) return close_by_syscall(number, a);
  const long result = real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (shim::process::is_active()) learn_from(number, a, result);
  if (row != nullptr && row->kind == shim::SyscallKind::makes_fd)
    shim::noted(static_cast<int>(result));
  if (row != nullptr && row->kind == shim::SyscallKind::limits && shim::process::owns_table())
    shim::placeholder::note_limit();
  return result;
}

// Functions that libc got later; they mean what the system call means.
template <typename... Arguments>
static int by_number(long number, Arguments... arguments) {
  return static_cast<int>(export_syscall(
      number, (long)arguments...));  // NOLINT(google-readability-casting): integers and pointers
}
int export_move_mount(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) {
  return by_number(SYS_move_mount, from_dir, from, to_dir, to, flags);
}
int export_open_tree(int dir, const char* path, unsigned flags) {
  return by_number(SYS_open_tree, dir, path, flags);
}
int export_mount_setattr(int dir, const char* path, unsigned flags, void* attributes, size_t size) {
  return by_number(shim::k_mount_setattr, dir, path, flags, attributes, size);
}
int export_fsopen(const char* type, unsigned flags) { return by_number(SYS_fsopen, type, flags); }
int export_fspick(int dir, const char* path, unsigned flags) {
  return by_number(SYS_fspick, dir, path, flags);
}
int export_fsconfig(int fd, unsigned command, const char* key, const void* value, int aux) {
  return by_number(SYS_fsconfig, fd, command, key, value, aux);
}
int export_fsmount(int fd, unsigned flags, unsigned attributes) {
  return by_number(SYS_fsmount, fd, flags, attributes);
}
