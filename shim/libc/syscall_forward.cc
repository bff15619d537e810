#include "shim/libc/syscall_forward.h"

#include <linux/io_uring.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/base/memory/kernel_page.h"
#include "shim/calls/locks.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/open_plan.h"
#include "shim/calls/past_libc.h"
#include "shim/calls/syscall_table.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/libc/map.h"
#include "shim/process/c_result.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"
#include "shim/process/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

// Makes a call that libc has no function for, and that changes the subject of (dir, path).
// `attribute`: the name of the extended attribute that it changes, or 0.
long change(long number, const long (&a)[6], int dir, long path, shim::NameChange::Of of,
            long attribute = 0) {
  const auto* const name = reinterpret_cast<const char*>(path);
  if (shim::path_filter::is_unmapped(name))
    return real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (shim::unmounted_paths::is_read_only(dir, name)) return shim::to_c(-EROFS);
  shim::NameChange change(dir, name, of);
  const shim::Passage before =
      attribute == 0
          ? shim::passage_of(dir, name)
          : shim::passage_by_attribute(dir, name, reinterpret_cast<const char*>(attribute));
  const long result = real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (result == 0) change.commit(before);
  return shim::told_of_change(result, dir, name, of);
}

// Answers cachestat for a served file: all its bytes are in memory. The kernel's pages of the file
// do not count, because the program does not read them.
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
  // EBADF means that the kernel refused only the placeholder. So the kernel has this call, and no
  // filter forbids it.
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

// With IORING_SETUP_SQPOLL, a kernel thread reads requests without a system call that could be
// intercepted. The requests to any other ring pass through io_uring_enter, which the program may
// call without libc.
long set_up_ring(const long (&a)[6]) {
  const auto* const parameters = reinterpret_cast<const ::io_uring_params*>(a[1]);
  const bool polls = !shim::is_bad_pointer(parameters, sizeof *parameters) &&
                     (parameters->flags & IORING_SETUP_SQPOLL) != 0;
  if (!polls) shim::past_libc::doubt_next_ring();
  shim::materialize_all(/*only_inherited=*/false, "syscall");
  shim::expect_new_fd();
  const auto call = [&] { return real::syscall(SYS_io_uring_setup, a[0], a[1], 0L, 0L, 0L, 0L); };
  const int fd = shim::noted(
      static_cast<int>(polls ? shim::past_libc::with_reader("a kernel thread", call) : call()));
  if (!polls) shim::past_libc::doubt_ring(fd);
  return fd;
}

// Calls a function of libc with as many of the arguments as it has parameters.
template <typename Result, typename... Parameters>
long call_with(Result (*function)(Parameters...), const long (&a)[6]) {
  return [&]<std::size_t... k_at>(std::index_sequence<k_at...>) {
    return static_cast<long>(function((Parameters)a[k_at]...));  // NOLINT: integers and pointers
  }(std::index_sequence_for<Parameters...>{});
}

// Forwards calls that name files.
bool forward_change(long number, const long (&a)[6], long& result) {
  const auto path = [&](int i) { return reinterpret_cast<const char*>(a[i]); };
  const auto number_at = [&](int i) { return static_cast<int>(a[i]); };
  const auto mode = [&](int i) { return static_cast<mode_t>(a[i]); };
  const auto file_by = [](long flags) {
    return shim::NameChange::file_by((flags & AT_SYMLINK_NOFOLLOW) == 0);
  };
  const auto is = [&](long value) {
    result = value;
    return true;
  };
  const auto by = [&](auto* function) { return is(call_with(function, a)); };
  switch (number) {
    case shim::k_cachestat: return is(cache_of_file(a));
    case shim::k_fchmodat2: return is(change(number, a, number_at(0), a[1], file_by(a[3])));
    case shim::k_setxattrat:
    case shim::k_removexattrat:
      return is(change(number, a, number_at(0), a[1], file_by(a[2]), a[3]));
    case shim::k_file_setattr: return is(change(number, a, number_at(0), a[1], file_by(a[4])));
    case shim::k_mount_setattr:
      return is(change(number, a, number_at(0), a[1], shim::NameChange::Of::mount_point));
    case SYS_move_mount:
      return is(change(number, a, number_at(2), a[3], shim::NameChange::Of::mount_point));
    case SYS_mount: return by(export_mount);
    case SYS_umount2: return by(export_umount2);
    case SYS_openat2: return by(export_openat2);
    case SYS_execve: return by(export_execve);
    case SYS_execveat: return by(export_execveat);
    case SYS_io_uring_setup: return is(set_up_ring(a));
    case SYS_chdir: return by(export_chdir);
    case SYS_fchdir: return by(export_fchdir);
    case SYS_ioctl:
      return is(export_ioctl(number_at(0), static_cast<unsigned long>(a[1]),
                             reinterpret_cast<void*>(a[2])));
    case SYS_fcntl:
      return (a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC || shim::locks::is_lock(number_at(1))) &&
             is(export_fcntl(number_at(0), number_at(1), a[2]));
    case SYS_flock: return by(export_flock);
    case SYS_prlimit64: return by(export_prlimit64);
    case SYS_setrlimit:
      // Without limits, setrlimit fails, but prlimit64 does not.
      return a[1] != 0 &&
             is(export_prlimit64(0, number_at(0), reinterpret_cast<const struct ::rlimit64*>(a[1]),
                                 nullptr));
    case SYS_open_by_handle_at: return by(export_open_by_handle_at);
    case SYS_sendmsg: return by(export_sendmsg);
    case SYS_recvmsg: return by(export_recvmsg);
    case SYS_sendmmsg: return by(export_sendmmsg);
    case SYS_recvmmsg: return by(export_recvmmsg);
    case SYS_pidfd_getfd: return by(export_pidfd_getfd);
    case SYS_getdents64:
      return shim::g_fds.kind(number_at(0)) == shim::RowKind::unmounted_directory &&
             by(export_getdents64);
    case SYS_prctl:
      return a[0] == PR_SET_SECCOMP && is(export_prctl(number_at(0), a[1], a[2], a[3], a[4]));
    case SYS_setxattr: return by(export_setxattr);
    case SYS_lsetxattr: return by(export_lsetxattr);
    case SYS_fsetxattr: return by(export_fsetxattr);
    case SYS_removexattr: return by(export_removexattr);
    case SYS_mmap: return is(shim::map_by_number(a));
    case SYS_munmap: return is(shim::unmap_by_number(a));
    case SYS_mremap: return is(shim::remap_by_number(a));
    case SYS_mlockall: return is(shim::lock_all_by_number(a));
    case SYS_lremovexattr: return by(export_lremovexattr);
    case SYS_fremovexattr: return by(export_fremovexattr);
    case SYS_fallocate: return by(export_fallocate);
    case SYS_fchmod: return by(export_fchmod);
    case SYS_fchown: return by(export_fchown);
    case SYS_dup: return by(export_dup);
    case SYS_dup3: return by(export_dup3);
    case SYS_openat: return is(export_openat(number_at(0), path(1), number_at(2), mode(3)));
    case SYS_truncate: return by(export_truncate);
    case SYS_unlinkat: return by(export_unlinkat);
    case SYS_bind: return by(export_bind);
    case SYS_mkdirat: return by(export_mkdirat);
    case SYS_mknodat: return by(export_mknodat);
    case SYS_symlinkat: return by(export_symlinkat);
    case SYS_linkat: return by(export_linkat);
    case SYS_renameat2: return by(export_renameat2);
    case SYS_fchmodat: return is(export_fchmodat(number_at(0), path(1), mode(2), 0));
    case SYS_fchownat: return by(export_fchownat);
    case SYS_utimensat:
      if (path(1) != nullptr) return by(export_utimensat);
      // Without a path, the call is the same as futimens. libc's utimensat refuses a null path.
      return a[3] == 0 && number_at(0) >= 0 &&
             is(export_futimens(number_at(0), reinterpret_cast<const struct ::timespec*>(a[2])));
#if defined(SYS_open)
    case SYS_open: return is(export_open(path(0), number_at(1), mode(2)));
    case SYS_creat: return by(export_creat);
    case SYS_unlink: return by(export_unlink);
    case SYS_mkdir: return by(export_mkdir);
    case SYS_rmdir: return by(export_rmdir);
    case SYS_mknod: return by(export_mknod);
    case SYS_symlink: return by(export_symlink);
    case SYS_link: return by(export_link);
    case SYS_rename: return by(export_rename);
    case SYS_renameat: return by(export_renameat);
    case SYS_dup2: return by(export_dup2);
    case SYS_utime: return by(export_utime);
    case SYS_utimes: return by(export_utimes);
    case SYS_futimesat: return by(export_futimesat);
    case SYS_chmod: return by(export_chmod);
    case SYS_chown: return by(export_chown);
    case SYS_lchown: return by(export_lchown);
#endif
    default: return false;
  }
}

// Forwards queries about our paths and their fds. The kernel does not know our paths; only our
// exports can answer.
bool forward_query(long number, const long (&a)[6], long& result) {
  if (shim::process::origin_metadata() == nullptr) return false;
  const auto by = [&](auto* function) {
    result = call_with(function, a);
    return true;
  };
  const auto is_directory = [&] {
    return shim::g_fds.kind(static_cast<int>(a[0])) == shim::RowKind::unmounted_directory;
  };
  switch (number) {
    case SYS_fstat: return is_directory() && by(export_fstat);
    case SYS_lseek: return is_directory() && by(export_lseek);
    case SYS_newfstatat: return by(export_fstatat);
    case SYS_statx: return by(export_statx);
    case SYS_faccessat:
      result = export_faccessat(static_cast<int>(a[0]), reinterpret_cast<const char*>(a[1]),
                                static_cast<int>(a[2]), 0);
      return true;
    case SYS_faccessat2: return by(export_faccessat);
    case SYS_readlinkat: return by(export_readlinkat);
#if defined(SYS_stat)
    case SYS_stat: return by(export_stat);
    case SYS_lstat: return by(export_lstat);
    case SYS_access: return by(export_access);
    case SYS_readlink: return by(export_readlink);
#endif
    default: return false;
  }
}

}  // namespace

bool shim::forward_syscall(long number, const long (&arguments)[6], long& result) {
  return forward_change(number, arguments, result) || forward_query(number, arguments, result);
}
