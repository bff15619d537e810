#include "prefetch/order/announced/announce_socket.h"

#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "cache/base/error_text.h"
#include "cache/base/process/high_fd.h"

namespace cube::prefetch {
namespace {

namespace sys = base::sys;

struct Address {
  sockaddr_un name{};
  std::size_t size = 0;
};

bool make_address(const std::string& path, Address& address) {
  if (path.empty() || path.size() >= sizeof address.name.sun_path) return false;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path, path.c_str(), path.size() + 1);
  address.size = offsetof(sockaddr_un, sun_path) + path.size() + 1;
  return true;
}

base::Result<base::UniqueFd> make_socket(int flags) {
  const long fd = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags);
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  return base::UniqueFd(static_cast<int>(fd));
}

// Removes a stale socket of our own user. Returns true if the name is free afterwards.
bool remove_stale(const std::string& path, std::string& why) {
  struct ::stat st {};
  const long error = sys::fstatat(AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW);
  if (error == -ENOENT) return true;
  if (sys::failed(error)) {
    why = base::text_of_error(static_cast<int>(-error));
  } else if (!S_ISSOCK(st.st_mode)) {
    why = "a file of this name is not a socket";
  } else if (st.st_uid != sys::geteuid()) {
    why = fmt::format("a socket of another user (uid {}) has this name", st.st_uid);
  } else if (const long gone = sys::unlink(path.c_str()); sys::failed(gone)) {
    why = base::text_of_error(static_cast<int>(-gone));
  } else {
    return true;
  }
  return false;
}

}  // namespace

base::Result<ListeningSocket> listen_at(const std::string& path, std::string& why) {
  const auto refuse = [&](long error) {
    why = base::text_of_error(static_cast<int>(-error));
    return base::fail(static_cast<int>(-error));
  };
  Address address;
  if (!make_address(path, address)) {
    why = fmt::format("the name is too long for a socket: it may have {} bytes",
                      sizeof address.name.sun_path - 1);
    return base::fail(ENAMETOOLONG);
  }
  auto fd = make_socket(SOCK_NONBLOCK);
  if (!fd) return refuse(-fd.error().value);
  ListeningSocket socket{base::raise_fd(std::move(*fd))};
  long error = sys::bind(socket.fd.get(), &address.name, address.size);
  if (error == -EADDRINUSE) {
    if (!remove_stale(path, why)) return base::fail(EADDRINUSE);
    error = sys::bind(socket.fd.get(), &address.name, address.size);
  }
  if (sys::failed(error)) return refuse(error);
  // With any umask, processes of other users cannot connect in between, because the socket does not
  // listen yet.
  struct ::stat st {};
  error = sys::chmod(path.c_str(), 0600);
  if (!sys::failed(error)) error = sys::fstatat(AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW);
  if (!sys::failed(error)) error = sys::listen(socket.fd.get(), 64);
  if (sys::failed(error)) {
    sys::unlink(path.c_str());
    return refuse(error);
  }
  socket.device = st.st_dev;
  socket.inode = st.st_ino;
  return socket;
}

void remove_socket(const std::string& path, std::uint64_t device, std::uint64_t inode) {
  struct ::stat st {};
  if (sys::failed(sys::fstatat(AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW))) return;
  if (st.st_dev == device && st.st_ino == inode) sys::unlink(path.c_str());
}

void knock(const std::string& path) {
  Address address;
  if (!make_address(path, address)) return;
  const auto fd = make_socket(SOCK_NONBLOCK);
  if (fd) sys::connect(fd->get(), &address.name, address.size);
}

bool is_trusted_peer(int fd) {
  struct ::ucred peer {};
  unsigned size = sizeof peer;
  if (sys::failed(sys::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) ||
      size != sizeof peer)
    return false;
  return peer.uid == 0 || peer.uid == sys::geteuid();
}

long receive_message(int fd, void* to, std::size_t capacity) {
  long n = -EINTR;
  while (n == -EINTR) n = sys::recv(fd, to, capacity, MSG_DONTWAIT | MSG_TRUNC);
  return n;
}

bool send_message(int fd, const void* from, std::size_t size) {
  return sys::send(fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<long>(size);
}

}  // namespace cube::prefetch
