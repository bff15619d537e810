// syscall(): what a program asks of the kernel by number means for us what libc's function of that name means, or makes real
// first whatever is served among its fds.
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <cstdarg>

#include "shim/c_result.h"
#include "shim/exports.h"
#include "shim/file_calls.h"
#include "shim/locks.h"
#include "shim/materialize.h"
#include "shim/new_fds.h"
#include "shim/path_calls.h"
#include "shim/process.h"
#include "shim/real_libc.h"
#include "shim/syscall_table.h"
#include "shim/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

constexpr long k_fchmodat2 = 452;

void before_syscall(const shim::SyscallRow& row, const long (&arguments)[6]) {
  const auto fd_at = [&](int position) { return static_cast<int>(arguments[position]); };
  switch (row.kind) {
    case shim::SyscallKind::one_fd: shim::materialize(fd_at(row.first)); break;
    case shim::SyscallKind::two_fds:
      shim::materialize(fd_at(row.first));
      shim::materialize(fd_at(row.second));
      shim::expect_new_fd();
      break;
    case shim::SyscallKind::makes_fd:
      if (row.first >= 0) shim::materialize(fd_at(row.first));
      shim::expect_new_fd();
      break;
    case shim::SyscallKind::closes:
      if (row.number == SYS_close) {
        shim::materialize(fd_at(0));
        shim::file_calls::note_close(fd_at(0));
      } else {
        shim::materialize_all();
        shim::file_calls::close_range(static_cast<unsigned>(arguments[0]), static_cast<unsigned>(arguments[1]));
      }
      break;
    case shim::SyscallKind::forks:
      shim::process::prepare_child();
      // Without its structure clone3 cannot be told from a vfork; the question costs a getpid from now on.
      shim::process::expect_shared_memory_child();
      break;
    case shim::SyscallKind::identity:
      shim::materialize_all();
      shim::process::disable("a system call that changes what paths or permissions mean");
      break;
    case shim::SyscallKind::sandbox:
      // A filter, or the strict mode. Without a program it is only a question whether there is such a thing.
      if (arguments[0] == SECCOMP_SET_MODE_STRICT || (arguments[0] == SECCOMP_SET_MODE_FILTER && arguments[2] != 0))
        shim::process::seal();
      break;
    case shim::SyscallKind::everything:
      shim::materialize_all();
      shim::expect_new_fd();
      break;
  }
}

// Planned with a flag that is never served: what openat2 is asked for beyond openat, only the kernel knows.
long open_by_how(const long (&a)[6]) {
  const auto* const how = reinterpret_cast<const ::open_how*>(a[2]);
  const bool known = !shim::is_bad_pointer(how, sizeof *how) && a[3] >= static_cast<long>(sizeof *how);
  shim::materialize(static_cast<int>(a[0]));
  shim::OpenPlan plan(static_cast<int>(a[0]), reinterpret_cast<const char*>(a[1]),
                      known ? static_cast<int>(how->flags) | O_NOATIME : O_RDONLY | O_NOATIME);
  return plan.note(static_cast<int>(real::syscall(SYS_openat2, a[0], a[1], a[2], a[3], 0L, 0L)));
}

long change_mode(const long (&a)[6]) {
  shim::NameChange change(static_cast<int>(a[0]), reinterpret_cast<const char*>(a[1]), (a[3] & AT_SYMLINK_NOFOLLOW) == 0);
  const long result = real::syscall(k_fchmodat2, a[0], a[1], a[2], a[3], 0L, 0L);
  if (result == 0) change.commit();
  return result;
}

// Those that name files mean what libc's functions of that name mean, and ours know what follows from them.
bool forward(long number, const long (&a)[6], long& result) {
  const auto path = [&](int i) { return reinterpret_cast<const char*>(a[i]); };
  const auto number_at = [&](int i) { return static_cast<int>(a[i]); };
  const auto address = [&](int i) { return reinterpret_cast<void*>(a[i]); };
  const auto mode = [&](int i) { return static_cast<mode_t>(a[i]); };
  const auto times = [&](int i) { return reinterpret_cast<const struct ::timespec*>(a[i]); };
  switch (number) {
    case k_fchmodat2: result = change_mode(a); return true;
    case SYS_openat2: result = open_by_how(a); return true;
    case SYS_chdir: result = export_chdir(path(0)); return true;
    case SYS_fchdir: result = export_fchdir(number_at(0)); return true;
    case SYS_ioctl:
      result = export_ioctl(number_at(0), static_cast<unsigned long>(a[1]), reinterpret_cast<void*>(a[2]));
      return true;
    case SYS_fcntl:
      if (a[1] != F_DUPFD && a[1] != F_DUPFD_CLOEXEC && !shim::locks::is_lock(number_at(1))) return false;
      result = export_fcntl(number_at(0), number_at(1), a[2]);
      return true;
    case SYS_flock: result = export_flock(number_at(0), number_at(1)); return true;
    case SYS_getdents64:
      if (shim::g_fds.kind(number_at(0)) != shim::RowKind::packed) return false;
      result = export_getdents64(number_at(0), reinterpret_cast<void*>(a[1]), static_cast<size_t>(a[2]));
      return true;
    case SYS_setxattr: result = export_setxattr(path(0), path(1), path(2), static_cast<size_t>(a[3]), number_at(4)); return true;
    case SYS_removexattr: result = export_removexattr(path(0), path(1)); return true;
    case SYS_mmap:
      result = reinterpret_cast<long>(
          export_mmap(address(0), static_cast<size_t>(a[1]), number_at(2), number_at(3), number_at(4), a[5]));
      return true;
    case SYS_munmap: result = export_munmap(address(0), static_cast<size_t>(a[1])); return true;
    case SYS_mremap:
      result = reinterpret_cast<long>(
          export_mremap(address(0), static_cast<size_t>(a[1]), static_cast<size_t>(a[2]), number_at(3), address(4)));
      return true;
    case SYS_openat: result = export_openat(number_at(0), path(1), number_at(2), mode(3)); return true;
    case SYS_truncate: result = export_truncate(path(0), a[1]); return true;
    case SYS_unlinkat: result = export_unlinkat(number_at(0), path(1), number_at(2)); return true;
    case SYS_linkat: result = export_linkat(number_at(0), path(1), number_at(2), path(3), number_at(4)); return true;
    case SYS_renameat2:
      result = export_renameat2(number_at(0), path(1), number_at(2), path(3), static_cast<unsigned>(a[4]));
      return true;
    case SYS_fchmodat: result = export_fchmodat(number_at(0), path(1), mode(2), 0); return true;
    case SYS_fchownat:
      result = export_fchownat(number_at(0), path(1), static_cast<uid_t>(a[2]), static_cast<gid_t>(a[3]), number_at(4));
      return true;
    case SYS_utimensat:
      // Without a path it is futimens, which libc's utimensat refuses.
      if (path(1) == nullptr) return false;
      result = export_utimensat(number_at(0), path(1), times(2), number_at(3));
      return true;
#if defined(SYS_open)
    case SYS_open: result = export_open(path(0), number_at(1), mode(2)); return true;
    case SYS_creat: result = export_creat(path(0), mode(1)); return true;
    case SYS_unlink: result = export_unlink(path(0)); return true;
    case SYS_link: result = export_link(path(0), path(1)); return true;
    case SYS_rename: result = export_rename(path(0), path(1)); return true;
    case SYS_renameat: result = export_renameat(number_at(0), path(1), number_at(2), path(3)); return true;
    case SYS_chmod: result = export_chmod(path(0), mode(1)); return true;
    case SYS_chown: result = export_chown(path(0), static_cast<uid_t>(a[1]), static_cast<gid_t>(a[2])); return true;
    case SYS_lchown: result = export_lchown(path(0), static_cast<uid_t>(a[1]), static_cast<gid_t>(a[2])); return true;
#endif
    default: return false;
  }
}

}  // namespace

long export_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  long forwarded = 0;
  if (shim::process::is_active() && forward(number, a, forwarded)) return forwarded;
  const bool concerns_us = shim::process::is_active() || shim::g_fds.served() != 0 || number == SYS_seccomp;
  const shim::SyscallRow* const row = concerns_us ? shim::syscall_row_of(number) : nullptr;
  if (row != nullptr && shim::process::owns_table()) before_syscall(*row, a);
  const long result = real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (row != nullptr && row->kind == shim::SyscallKind::makes_fd) shim::noted(static_cast<int>(result));
  return result;
}
