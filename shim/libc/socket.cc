// Sockets. Messages may carry fds, and the address of a socket may be a path.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "cache/base/memory/can_read.h"
#include "cache/base/sys.h"
#include "shim/calls/name/kernel_answer.h"
#include "shim/calls/name/name_change.h"
#include "shim/calls/name/unmounted_paths.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/open/opened_writers.h"
#include "shim/fd/materialize.h"
#include "shim/libc/exports.h"
#include "shim/process/c_result.h"
#include "shim/process/real_libc.h"
#include "shim/process/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

// The path of a socket. Empty if the address is abstract (begins with a zero byte), or if the
// kernel must choose an address.
struct SocketPath {
  // The text has one more byte than an address, because an address may lack the terminating null.
  char text[sizeof(::sockaddr_un::sun_path) + 1] = {};

  SocketPath() = default;
  // The address must be readable.
  SocketPath(const struct ::sockaddr* a, socklen_t n) {
    constexpr std::size_t k_path_at = offsetof(struct ::sockaddr_un, sun_path);
    if (n <= k_path_at || a->sa_family != AF_UNIX) return;
    std::memcpy(text, reinterpret_cast<const char*>(a) + k_path_at,
                std::min<std::size_t>(n - k_path_at, sizeof text - 1));
  }
  bool is_any() const { return text[0] != '\0'; }
};

bool is_socket(int fd) {
  namespace sys = cube::base::sys;
  int type = 0;
  socklen_t size = sizeof type;
  return !sys::failed(
      sys::raw(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, sys::arg(&type), sys::arg(&size)));
}

bool is_readable_address(const struct ::sockaddr* a, socklen_t n) {
  if (n == 0 || n > sizeof(::sockaddr_un) || shim::is_bad_pointer(a, n)) return false;
  const std::uintptr_t begin = shim::address_of(a);
  return cube::base::can_read_around(begin) && cube::base::can_read_around(begin + n - 1);
}

// Corrects the cache by the kernel's answer about the socket at this address.
template <typename Result>
Result told_of_peer(Result result, const struct ::sockaddr* a, socklen_t n) {
  if (a == nullptr || !shim::process::is_active()) return result;
  const SocketPath path = is_readable_address(a, n) ? SocketPath(a, n) : SocketPath();
  if (path.is_any()) shim::told(static_cast<long>(result), AT_FDCWD, path.text, false);
  return result;
}

template <typename Result>
Result told_of_peer(Result result, const struct ::msghdr* message) {
  if (shim::is_bad_pointer(message, sizeof *message)) return result;
  return told_of_peer(result, static_cast<const struct ::sockaddr*>(message->msg_name),
                      message->msg_namelen);
}

void materialize_sent(const struct ::msghdr* message) {
  if (shim::is_bad_pointer(message, sizeof *message) || message->msg_control == nullptr) return;
  auto* const m = const_cast<struct ::msghdr*>(message);
  for (struct ::cmsghdr* c = CMSG_FIRSTHDR(m); c != nullptr; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const auto* const begin = static_cast<const char*>(m->msg_control);
    const std::size_t left =
        static_cast<std::size_t>(begin + m->msg_controllen - reinterpret_cast<const char*>(c));
    // The kernel refuses such a message (EINVAL).
    if (c->cmsg_len < CMSG_LEN(0) || c->cmsg_len > left) return;
    const auto* const fds = reinterpret_cast<const int*>(CMSG_DATA(c));
    const std::size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i) {
      shim::materialize(fds[i], "sendmsg");
      shim::let_writer_outlive_us(fds[i]);
    }
  }
}

void note_received(struct ::msghdr* m) {
  if (m == nullptr || m->msg_control == nullptr) return;
  for (struct ::cmsghdr* c = CMSG_FIRSTHDR(m); c != nullptr; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const auto* const fds = reinterpret_cast<const int*>(CMSG_DATA(c));
    const std::size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < n; ++i) shim::note_foreign_fd(fds[i]);
  }
}

}  // namespace

int export_bind(int fd, const struct ::sockaddr* a, socklen_t n) {
  shim::materialize(fd);
  if (shim::process::origin_metadata() != nullptr && is_readable_address(a, n) && is_socket(fd)) {
    const SocketPath path(a, n);
    const int error = path.is_any() ? shim::unmounted_paths::error_of_new(AT_FDCWD, path.text) : 0;
    if (error != 0) return static_cast<int>(shim::to_c(error == EEXIST ? -EADDRINUSE : -error));
  }
  const int result = real::bind(fd, a, n);
  if (result != 0 && errno != EADDRINUSE && errno != ENOENT && errno != ENOTDIR) return result;
  // If the path exists, bind reports EADDRINUSE instead of EEXIST.
  const SocketPath path = is_readable_address(a, n) ? SocketPath(a, n) : SocketPath();
  const shim::KeepErrno keep;
  if (result != 0 && errno == EADDRINUSE) errno = EEXIST;
  if (path.is_any()) shim::told_of_new_name(result, AT_FDCWD, path.text);
  return result;
}
int export_connect(int fd, const struct ::sockaddr* a, socklen_t n) {
  shim::materialize(fd);
  return told_of_peer(real::connect(fd, a, n), a, n);
}
ssize_t export_sendto(int fd, const void* from, size_t n, int flags, const struct ::sockaddr* a,
                      socklen_t an) {
  shim::materialize(fd);
  return told_of_peer(real::sendto(fd, from, n, flags, a, an), a, an);
}
ssize_t export_sendmsg(int socket, const struct ::msghdr* message, int flags) {
  shim::materialize(socket);
  materialize_sent(message);
  return told_of_peer(real::sendmsg(socket, message, flags), message);
}
int export_sendmmsg(int socket, struct ::mmsghdr* messages, unsigned n, int flags) {
  shim::materialize(socket);
  // sendmmsg sends at most this many messages in one call.
  constexpr unsigned k_most = 1024;
  const unsigned sent = std::min(n, k_most);
  if (!shim::is_bad_pointer(messages, sent * sizeof *messages)) {
    for (unsigned i = 0; i < sent; ++i) materialize_sent(&messages[i].msg_hdr);
  }
  const int result = real::sendmmsg(socket, messages, n, flags);
  // sendmmsg returns an error only if the first message fails. If a later message fails, the next
  // call reports the error.
  if (sent != 0) told_of_peer(result, &messages->msg_hdr);
  return result;
}
ssize_t export_recvmsg(int socket, struct ::msghdr* message, int flags) {
  shim::materialize(socket);
  // Only a message with a control buffer can carry fds.
  if (message != nullptr && message->msg_control != nullptr) shim::expect_new_fd();
  const ssize_t n = real::recvmsg(socket, message, flags);
  if (n >= 0) note_received(message);
  return n;
}
int export_recvmmsg(int socket, struct ::mmsghdr* messages, unsigned n, int flags,
                    struct ::timespec* timeout) {
  shim::materialize(socket);
  shim::expect_new_fd();
  const int got = real::recvmmsg(socket, messages, n, flags, timeout);
  for (int i = 0; i < got; ++i) note_received(&messages[i].msg_hdr);
  return got;
}
