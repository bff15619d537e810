// Calls with several fds or with a kernel interface of their own: whatever is served among their fds becomes real first.
#include <sys/syscall.h>

#include <cstdarg>

#include "shim/c_result.h"
#include "shim/exports.h"
#include "shim/file_calls.h"
#include "shim/materialize.h"
#include "shim/new_fds.h"
#include "shim/process.h"
#include "shim/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

bool any_served() { return shim::g_fds.served() != 0; }

// ---- system calls by number: which arguments are fds --------------------------------------------------------------

enum class SyscallKind : std::uint8_t { one_fd, two_fds, makes_fd, closes, forks, identity, everything };
struct SyscallRow {
  long number;
  SyscallKind kind;
  int first = 0, second = 0;  // positions of fds
};

constexpr SyscallRow k_syscalls[] = {
    {SYS_read, SyscallKind::one_fd},
    {SYS_pread64, SyscallKind::one_fd},
    {SYS_readv, SyscallKind::one_fd},
    {SYS_preadv, SyscallKind::one_fd},
    {SYS_preadv2, SyscallKind::one_fd},
    {SYS_lseek, SyscallKind::one_fd},
    {SYS_fstat, SyscallKind::one_fd},
    {SYS_newfstatat, SyscallKind::one_fd},
    {SYS_statx, SyscallKind::one_fd},
    {SYS_ioctl, SyscallKind::one_fd},
    {SYS_fcntl, SyscallKind::one_fd},
    {SYS_flock, SyscallKind::one_fd},
    {SYS_fsync, SyscallKind::one_fd},
    {SYS_fdatasync, SyscallKind::one_fd},
    {SYS_syncfs, SyscallKind::one_fd},
    {SYS_fstatfs, SyscallKind::one_fd},
    {SYS_ftruncate, SyscallKind::one_fd},
    {SYS_fallocate, SyscallKind::one_fd},
    {SYS_fadvise64, SyscallKind::one_fd},
    {SYS_readahead, SyscallKind::one_fd},
    {SYS_getdents64, SyscallKind::one_fd},
    {SYS_fchmod, SyscallKind::one_fd},
    {SYS_fchown, SyscallKind::one_fd},
    {SYS_fchdir, SyscallKind::one_fd},
    {SYS_fgetxattr, SyscallKind::one_fd},
    {SYS_flistxattr, SyscallKind::one_fd},
    {SYS_fsetxattr, SyscallKind::one_fd},
    {SYS_fremovexattr, SyscallKind::one_fd},
    {SYS_utimensat, SyscallKind::one_fd},
    {SYS_execveat, SyscallKind::one_fd},
    {SYS_readlinkat, SyscallKind::one_fd},
    {SYS_name_to_handle_at, SyscallKind::one_fd},
    {SYS_mmap, SyscallKind::one_fd, 4},
    {SYS_epoll_ctl, SyscallKind::one_fd, 2},
    {SYS_sendfile, SyscallKind::two_fds, 0, 1},
    {SYS_copy_file_range, SyscallKind::two_fds, 0, 2},
    {SYS_splice, SyscallKind::two_fds, 0, 2},
    {SYS_tee, SyscallKind::two_fds, 0, 1},
    {SYS_dup, SyscallKind::makes_fd},
    {SYS_dup3, SyscallKind::two_fds, 0, 1},
    {SYS_openat, SyscallKind::makes_fd, -1},
    {SYS_openat2, SyscallKind::makes_fd, -1},
    {SYS_memfd_create, SyscallKind::makes_fd, -1},
    {SYS_socket, SyscallKind::makes_fd, -1},
    {SYS_pidfd_open, SyscallKind::makes_fd, -1},
    {SYS_epoll_create1, SyscallKind::makes_fd, -1},
    {SYS_eventfd2, SyscallKind::makes_fd, -1},
    {SYS_userfaultfd, SyscallKind::makes_fd, -1},
    {SYS_perf_event_open, SyscallKind::makes_fd, -1},
    {SYS_accept4, SyscallKind::makes_fd, -1},
    {SYS_close, SyscallKind::closes},
    {SYS_close_range, SyscallKind::closes},
    {SYS_clone, SyscallKind::forks},
    {SYS_clone3, SyscallKind::forks},
    {SYS_execve, SyscallKind::everything},
#if defined(SYS_open)
    {SYS_open, SyscallKind::makes_fd, -1},
    {SYS_dup2, SyscallKind::two_fds, 0, 1},
    {SYS_fork, SyscallKind::forks},
    {SYS_poll, SyscallKind::everything},
    {SYS_select, SyscallKind::everything},
#endif
    {SYS_ppoll, SyscallKind::everything},
    {SYS_pselect6, SyscallKind::everything},
    {SYS_sendmsg, SyscallKind::everything},
    {SYS_sendmmsg, SyscallKind::everything},
    {SYS_io_submit, SyscallKind::everything},
    {SYS_io_uring_enter, SyscallKind::everything},
    {SYS_io_uring_register, SyscallKind::everything},
    {SYS_io_uring_setup, SyscallKind::everything},
    {SYS_pidfd_getfd, SyscallKind::everything},
    {SYS_setuid, SyscallKind::identity},
    {SYS_setreuid, SyscallKind::identity},
    {SYS_setresuid, SyscallKind::identity},
    {SYS_setfsuid, SyscallKind::identity},
    {SYS_setgroups, SyscallKind::identity},
    {SYS_capset, SyscallKind::identity},
    {SYS_chroot, SyscallKind::identity},
    {SYS_pivot_root, SyscallKind::identity},
    {SYS_setns, SyscallKind::identity},
    {SYS_unshare, SyscallKind::identity},
    {SYS_chdir, SyscallKind::identity},
};

const SyscallRow* row_of(long number) {
  for (const SyscallRow& row : k_syscalls) {
    if (row.number == number) return &row;
  }
  return nullptr;
}

void before_syscall(const SyscallRow& row, const long (&arguments)[6]) {
  const auto fd_at = [&](int position) { return static_cast<int>(arguments[position]); };
  switch (row.kind) {
    case SyscallKind::one_fd: shim::materialize(fd_at(row.first)); break;
    case SyscallKind::two_fds:
      shim::materialize(fd_at(row.first));
      shim::materialize(fd_at(row.second));
      shim::expect_new_fd();
      break;
    case SyscallKind::makes_fd:
      if (row.first >= 0) shim::materialize(fd_at(row.first));
      shim::expect_new_fd();
      break;
    case SyscallKind::closes:
      if (row.number == SYS_close) {
        shim::materialize(fd_at(0));
        shim::file_calls::note_close(fd_at(0));
      } else {
        shim::materialize_all();
        shim::file_calls::close_range(static_cast<unsigned>(arguments[0]), static_cast<unsigned>(arguments[1]));
      }
      break;
    case SyscallKind::forks:
      shim::process::prepare_child();
      // Without its structure clone3 cannot be told from a vfork; the question costs a getpid from now on.
      shim::process::expect_shared_memory_child();
      break;
    case SyscallKind::identity:
      shim::materialize_all();
      shim::process::disable("a system call that changes what paths or permissions mean");
      break;
    case SyscallKind::everything:
      shim::materialize_all();
      shim::expect_new_fd();
      break;
  }
}

// Those that name files mean what libc's functions of that name mean, and ours know what follows from them.
bool forward(long number, const long (&a)[6], long& result) {
  const auto path = [&](int i) { return reinterpret_cast<const char*>(a[i]); };
  const auto number_at = [&](int i) { return static_cast<int>(a[i]); };
  const auto mode = [&](int i) { return static_cast<mode_t>(a[i]); };
  const auto times = [&](int i) { return reinterpret_cast<const struct ::timespec*>(a[i]); };
  switch (number) {
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
  const SyscallRow* const row = shim::process::is_active() || any_served() ? row_of(number) : nullptr;
  if (row != nullptr && shim::process::owns_table()) before_syscall(*row, a);
  const long result = real::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (row != nullptr && row->kind == SyscallKind::makes_fd) shim::noted(static_cast<int>(result));
  return result;
}

// ---- several fds --------------------------------------------------------------------------------------------------

#define CUBE_TWO_FDS(result, name, from, to, declaration, ...) \
  result export_##name declaration {                           \
    shim::materialize(from);                                   \
    shim::materialize(to);                                     \
    return real::name(__VA_ARGS__);                            \
  }
CUBE_TWO_FDS(ssize_t, sendfile, from, to, (int to, int from, off_t* at, size_t n), to, from, at, n)
CUBE_TWO_FDS(ssize_t, sendfile64, from, to, (int to, int from, off_t* at, size_t n), to, from, at, n)
CUBE_TWO_FDS(ssize_t, copy_file_range, from, to, (int from, off_t* from_at, int to, off_t* to_at, size_t n, unsigned flags), from,
             from_at, to, to_at, n, flags)
CUBE_TWO_FDS(ssize_t, splice, from, to, (int from, off_t* from_at, int to, off_t* to_at, size_t n, unsigned flags), from, from_at,
             to, to_at, n, flags)
CUBE_TWO_FDS(ssize_t, tee, from, to, (int from, int to, size_t n, unsigned flags), from, to, n, flags)
CUBE_TWO_FDS(int, epoll_ctl, epoll, fd, (int epoll, int operation, int fd, struct ::epoll_event* event), epoll, operation, fd,
             event)

namespace {

void materialize_polled(const struct ::pollfd* fds, nfds_t n) {
  if (!any_served() || fds == nullptr) return;
  for (nfds_t i = 0; i < n; ++i) shim::materialize(fds[i].fd);
}

void materialize_selected(int n, const fd_set* r, const fd_set* w, const fd_set* e) {
  if (!any_served()) return;
  for (int fd = 0; fd < n && fd < FD_SETSIZE; ++fd) {
    if ((r != nullptr && FD_ISSET(fd, r)) || (w != nullptr && FD_ISSET(fd, w)) || (e != nullptr && FD_ISSET(fd, e))) {
      shim::materialize(fd);
    }
  }
}

void materialize_sent(const struct ::msghdr* message) {
  if (!any_served() || message == nullptr || message->msg_control == nullptr) return;
  auto* const m = const_cast<struct ::msghdr*>(message);
  for (struct ::cmsghdr* c = CMSG_FIRSTHDR(m); c != nullptr; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const auto* const fds = reinterpret_cast<const int*>(CMSG_DATA(c));
    const std::size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i) shim::materialize(fds[i]);
  }
}

void note_received(struct ::msghdr* m) {
  if (m == nullptr || m->msg_control == nullptr) return;
  for (struct ::cmsghdr* c = CMSG_FIRSTHDR(m); c != nullptr; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const auto* const fds = reinterpret_cast<const int*>(CMSG_DATA(c));
    const std::size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i) shim::noted(fds[i]);
  }
}

}  // namespace

int export_poll(struct ::pollfd* fds, nfds_t n, int timeout) {
  materialize_polled(fds, n);
  return real::poll(fds, n, timeout);
}
int export___poll_chk(struct ::pollfd* fds, nfds_t n, int timeout, size_t room) {
  materialize_polled(fds, n);
  return real::__poll_chk(fds, n, timeout, room);
}
int export_ppoll(struct ::pollfd* fds, nfds_t n, const struct ::timespec* timeout, const sigset_t* mask) {
  materialize_polled(fds, n);
  return real::ppoll(fds, n, timeout, mask);
}
int export___ppoll_chk(struct ::pollfd* fds, nfds_t n, const struct ::timespec* timeout, const sigset_t* mask, size_t room) {
  materialize_polled(fds, n);
  return real::__ppoll_chk(fds, n, timeout, mask, room);
}
int export_select(int n, fd_set* r, fd_set* w, fd_set* e, struct ::timeval* timeout) {
  materialize_selected(n, r, w, e);
  return real::select(n, r, w, e, timeout);
}
int export_pselect(int n, fd_set* r, fd_set* w, fd_set* e, const struct ::timespec* timeout, const sigset_t* mask) {
  materialize_selected(n, r, w, e);
  return real::pselect(n, r, w, e, timeout, mask);
}
ssize_t export_sendmsg(int socket, const struct ::msghdr* message, int flags) {
  materialize_sent(message);
  return real::sendmsg(socket, message, flags);
}
int export_sendmmsg(int socket, struct ::mmsghdr* messages, unsigned n, int flags) {
  if (any_served() && messages != nullptr) {
    for (unsigned i = 0; i < n; ++i) materialize_sent(&messages[i].msg_hdr);
  }
  return real::sendmmsg(socket, messages, n, flags);
}
ssize_t export_recvmsg(int socket, struct ::msghdr* message, int flags) {
  // Only a message with room for fds can bring some.
  if (message != nullptr && message->msg_control != nullptr) shim::expect_new_fd();
  const ssize_t n = real::recvmsg(socket, message, flags);
  if (n >= 0) note_received(message);
  return n;
}
int export_recvmmsg(int socket, struct ::mmsghdr* messages, unsigned n, int flags, struct ::timespec* timeout) {
  shim::expect_new_fd();
  const int got = real::recvmmsg(socket, messages, n, flags, timeout);
  for (int i = 0; i < got; ++i) note_received(&messages[i].msg_hdr);
  return got;
}

// ---- asynchronous I/O ---------------------------------------------------------------------------------------------

#define CUBE_AIO(name, declaration, ...)                        \
  int export_##name declaration {                               \
    if (block != nullptr) shim::materialize(block->aio_fildes); \
    return real::name(__VA_ARGS__);                             \
  }
CUBE_AIO(aio_read, (struct ::aiocb * block), block)
CUBE_AIO(aio_read64, (struct ::aiocb * block), block)
CUBE_AIO(aio_fsync, (int operation, struct ::aiocb* block), operation, block)
CUBE_AIO(aio_fsync64, (int operation, struct ::aiocb* block), operation, block)

int export_lio_listio(int mode, struct ::aiocb* const* blocks, int n, struct ::sigevent* event) {
  shim::materialize_all();
  return real::lio_listio(mode, blocks, n, event);
}
int export_lio_listio64(int mode, struct ::aiocb* const* blocks, int n, struct ::sigevent* event) {
  shim::materialize_all();
  return real::lio_listio64(mode, blocks, n, event);
}
// Of libaio, which may have been loaded where we cannot look it up: then the system call itself. It returns -errno.
int export_io_submit(void* context, long n, void* blocks) {
  shim::materialize_all();
  if (real::io_submit.is_there()) return real::io_submit(context, n, blocks);
  return static_cast<int>(cube::base::sys::raw(SYS_io_submit, cube::base::sys::arg(context), n, cube::base::sys::arg(blocks)));
}
