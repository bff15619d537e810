// Calls on several fds, and special kernel interfaces. Each call first materializes the served
// files among its fds.
#include <sys/syscall.h>

#include <algorithm>

#include "shim/calls/new_fds.h"
#include "shim/calls/open/opened_writers.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/process/real_libc.h"
#include "shim/process/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

// False before the first file is served. Afterwards, an fd may be a placeholder: of a served file,
// or parked. To the program, a parked fd is closed.
bool may_have_placeholders() { return shim::g_fds.end() != 0; }

}  // namespace

// ---- several fds

#define CUBE_TWO_FDS(result, name, from, to, declaration, ...) \
  result export_##name declaration {                           \
    shim::materialize(from);                                   \
    shim::materialize(to);                                     \
    return real::name(__VA_ARGS__);                            \
  }
CUBE_TWO_FDS(ssize_t, sendfile, from, to, (int to, int from, off_t* at, size_t n), to, from, at, n)
CUBE_TWO_FDS(ssize_t, sendfile64, from, to, (int to, int from, off_t* at, size_t n), to, from, at,
             n)
CUBE_TWO_FDS(ssize_t, copy_file_range, from, to,
             (int from, off_t* from_at, int to, off_t* to_at, size_t n, unsigned flags), from,
             from_at, to, to_at, n, flags)
CUBE_TWO_FDS(ssize_t, splice, from, to,
             (int from, off_t* from_at, int to, off_t* to_at, size_t n, unsigned flags), from,
             from_at, to, to_at, n, flags)
CUBE_TWO_FDS(ssize_t, tee, from, to, (int from, int to, size_t n, unsigned flags), from, to, n,
             flags)
CUBE_TWO_FDS(int, epoll_ctl, epoll, fd,
             (int epoll, int operation, int fd, struct ::epoll_event* event), epoll, operation, fd,
             event)

namespace {

void materialize_polled(const struct ::pollfd* fds, nfds_t n) {
  if (!may_have_placeholders() || fds == nullptr) return;
  for (nfds_t i = 0; i < n; ++i) shim::materialize(fds[i].fd, "poll");
}

void materialize_selected(int n, const fd_set* r, const fd_set* w, const fd_set* e) {
  if (!may_have_placeholders()) return;
  for (int fd = 0; fd < n && fd < FD_SETSIZE; ++fd) {
    if ((r != nullptr && FD_ISSET(fd, r)) || (w != nullptr && FD_ISSET(fd, w)) ||
        (e != nullptr && FD_ISSET(fd, e))) {
      shim::materialize(fd, "select");
    }
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
int export_ppoll(struct ::pollfd* fds, nfds_t n, const struct ::timespec* timeout,
                 const sigset_t* mask) {
  materialize_polled(fds, n);
  return real::ppoll(fds, n, timeout, mask);
}
int export___ppoll_chk(struct ::pollfd* fds, nfds_t n, const struct ::timespec* timeout,
                       const sigset_t* mask, size_t room) {
  materialize_polled(fds, n);
  return real::__ppoll_chk(fds, n, timeout, mask, room);
}
int export_select(int n, fd_set* r, fd_set* w, fd_set* e, struct ::timeval* timeout) {
  materialize_selected(n, r, w, e);
  return real::select(n, r, w, e, timeout);
}
int export_pselect(int n, fd_set* r, fd_set* w, fd_set* e, const struct ::timespec* timeout,
                   const sigset_t* mask) {
  materialize_selected(n, r, w, e);
  return real::pselect(n, r, w, e, timeout, mask);
}
// ---- asynchronous I/O

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
// Calls libaio's function. If libaio was loaded with RTLD_LOCAL, so that its functions cannot be
// found, makes the system call. Returns -errno on failure.
int export_io_submit(void* context, long n, void* blocks) {
  shim::materialize_all();
  // A write may complete after the program has closed its fd.
  shim::let_writers_outlive_us();
  if (real::io_submit.is_there()) return real::io_submit(context, n, blocks);
  return static_cast<int>(cube::base::sys::raw(SYS_io_submit, cube::base::sys::arg(context), n,
                                               cube::base::sys::arg(blocks)));
}
