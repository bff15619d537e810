// Calls on one fd that are never answered in user space, and calls that make fds without opening a
// path. Rows of hooks.def define most of these functions.
#include "shim/calls/allocation.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/opened_writers.h"
#include "shim/fd/materialize.h"
#include "shim/libc/answers.h"
#include "shim/process/c_result.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;
using cube::shim::to_c;

namespace {

// Call this before a change of the fd's file. A change of a directory's times does not affect the
// files below. A change of its extended attributes may change its access control list.
shim::Passage passage_before(std::string_view call, int fd) {
  if (call.starts_with("futime")) return {};
  return call.ends_with("xattr") ? shim::passage_by_attribute(fd, "", "system.")
                                 : shim::passage_of(fd, "");
}

}  // namespace

#define CUBE_HOOK(result, name, parameters)
#define CUBE_FD_CALL(result, name, parameters, arguments) \
  result export_##name parameters {                       \
    shim::materialize(fd);                                \
    return real::name arguments;                          \
  }
#define CUBE_FD_CHANGE(result, name, parameters, arguments)                                \
  result export_##name parameters {                                                        \
    if (shim::unmounted_paths::is_read_only(fd)) return static_cast<result>(to_c(-EROFS)); \
    if (const int error = shim::materialize_to_change(fd); error != 0)                     \
      return static_cast<result>(to_c(error));                                             \
    const shim::Passage before = passage_before(#name, fd);                                \
    const result outcome = real::name arguments;                                           \
    if (outcome == 0) shim::note_changed(fd, before);                                      \
    return outcome;                                                                        \
  }
#define CUBE_NEW_FD(result, name, parameters, arguments) \
  result export_##name parameters {                      \
    shim::expect_new_fd();                               \
    return shim::noted(real::name arguments);            \
  }
#include "shim/hooks.def"

// Like CUBE_NEW_FD, but for a call on an fd that may be served.
#define CUBE_NEW_FD_OF(name, of, declaration, ...) \
  int export_##name declaration {                  \
    shim::materialize(of);                         \
    shim::expect_new_fd();                         \
    return shim::noted(real::name(__VA_ARGS__));   \
  }
CUBE_NEW_FD_OF(accept, fd, (int fd, struct ::sockaddr* a, socklen_t* n), fd, a, n)
CUBE_NEW_FD_OF(accept4, fd, (int fd, struct ::sockaddr* a, socklen_t* n, int flags), fd, a, n,
               flags)

// Like CUBE_NEW_FD_OF, but the new fd may be open for writing.
#define CUBE_FOREIGN_FD_OF(name, of, declaration, ...)     \
  int export_##name declaration {                          \
    shim::materialize(of);                                 \
    shim::expect_new_fd();                                 \
    return shim::note_foreign_fd(real::name(__VA_ARGS__)); \
  }
CUBE_FOREIGN_FD_OF(open_by_handle_at, mount, (int mount, struct ::file_handle* handle, int flags),
                   mount, handle, flags)
// `target` may be in this process.
CUBE_FOREIGN_FD_OF(pidfd_getfd, target, (int pidfd, int target, unsigned flags), pidfd, target,
                   flags)

int export_fallocate(int fd, int mode, off_t at, off_t n) {
  shim::materialize(fd);
  return shim::allocate({fd, at, n}, [&] { return real::fallocate(fd, mode, at, n); });
}
int export_fallocate64(int fd, int mode, off_t at, off_t n) {
  return export_fallocate(fd, mode, at, n);
}
int export_posix_fallocate(int fd, off_t at, off_t n) {
  shim::materialize(fd);
  return shim::allocate({fd, at, n}, [&] { return real::posix_fallocate(fd, at, n); });
}
int export_posix_fallocate64(int fd, off_t at, off_t n) {
  return export_posix_fallocate(fd, at, n);
}

int export_socketpair(int family, int type, int protocol, int* fds) {
  shim::expect_new_fd();
  return shim::noted_pair(real::socketpair(family, type, protocol, fds), fds);
}
int export_pipe(int* fds) {
  shim::expect_new_fd();
  return shim::noted_pair(real::pipe(fds), fds);
}
int export_pipe2(int* fds, int flags) {
  shim::expect_new_fd();
  return shim::noted_pair(real::pipe2(fds, flags), fds);
}
