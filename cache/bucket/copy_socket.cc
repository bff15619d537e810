#include "cache/bucket/copy_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "cache/base/clock.h"
#include "cache/base/process/interrupting_handlers.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/bucket/copy_stat.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

constexpr int k_open_flags = O_PATH | O_APPEND | O_NONBLOCK | O_SYNC;

bool make_address(const std::string& path, sockaddr_un& address) {
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return true;
}

bool is_of_this_user(int socket) {
  ucred peer{};
  unsigned size = sizeof peer;
  return !sys::failed(sys::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size)) &&
         peer.uid == sys::geteuid();
}

// A control message with room for one fd.
union Control {
  cmsghdr head;
  char room[CMSG_SPACE(sizeof(int))];
};

msghdr message_of(iovec& part, Control& control) {
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.room;
  message.msg_controllen = sizeof control.room;
  return message;
}

base::Result<base::UniqueFd> receive_fd(int socket) {
  int error = ESTALE;
  iovec part{&error, sizeof error};
  Control control{};
  Control& at = control;
  msghdr message{};
  // Peeks at the message, because a normal receive loses the passed fd if the process has no free
  // fd number.
  const auto receive = [&]() -> long {
    message = message_of(part, at);
    const long n = sys::raw(SYS_recvmsg, socket, sys::arg(&message), MSG_CMSG_CLOEXEC | MSG_PEEK);
    return !sys::failed(n) && (message.msg_flags & MSG_CTRUNC) != 0 ? -EMFILE : n;
  };
  const long got = base::within_lifted_fd_limit(receive);
  if (sys::failed(got)) return base::fail(static_cast<int>(-got));
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (got != sizeof error || head == nullptr || head->cmsg_type != SCM_RIGHTS) {
    // The gateway has ended, or has nothing for this ticket.
    return base::fail(got == sizeof error && error != 0 ? error : ECONNREFUSED);
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  return base::UniqueFd(fd);
}

// Opens `file` again under the number of `lowest`, because an open of the kernel would return the
// lowest free number.
base::Result<base::UniqueFd> show_as(base::UniqueFd lowest, int file, int flags) {
  const base::ProcFdName name(file, base::ProcFdName::Table::thread);
  const auto open = [&] {
    return sys::open(name.c_str(), (flags & k_open_flags) | O_RDONLY | O_CLOEXEC);
  };
  const base::UniqueFd shown(static_cast<int>(base::within_lifted_fd_limit(open)));
  if (!shown) return base::fail(-shown.get());
  const long over = sys::dup3(shown.get(), lowest.get(), flags & O_CLOEXEC);
  if (sys::failed(over)) return base::fail(static_cast<int>(-over));
  return lowest;
}

}  // namespace

base::Result<base::UniqueFd> collect_copy(const std::string& socket_path, const MailTicket& ticket,
                                          int flags) {
  sockaddr_un address{};
  if (!make_address(socket_path, address)) return base::fail(ENAMETOOLONG);
  const long made = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC);
  if (sys::failed(made)) return base::fail(static_cast<int>(-made));
  base::UniqueFd socket(static_cast<int>(made));
  const long connected = sys::connect(socket.get(), &address, sizeof address);
  if (sys::failed(connected)) return base::fail(static_cast<int>(-connected));
  if (!is_of_this_user(socket.get())) return base::fail(EACCES);
  // A timeout is needed, because the gateway may be suspended (SIGSTOP).
  constexpr std::uint64_t k_most_seconds = 10;
  const timeval limit{k_most_seconds, 0};
  sys::raw(SYS_setsockopt, socket.get(), SOL_SOCKET, SO_RCVTIMEO, sys::arg(&limit), sizeof limit);
  const long sent = sys::send(socket.get(), &ticket, sizeof ticket, MSG_NOSIGNAL);
  if (sys::failed(sent)) return base::fail(static_cast<int>(-sent));
  const std::uint64_t until_ns = base::monotonic_ns() + k_most_seconds * 1'000'000'000;
  auto file = receive_fd(socket.get());
  // With a timeout, the kernel does not restart the call after a handler, whatever its flags.
  while (!file && file.error().value == EINTR && !base::handlers_interrupt_calls()) {
    if (base::monotonic_ns() >= until_ns) return base::fail(ETIMEDOUT);
    file = receive_fd(socket.get());
  }
  if (!file) return base::fail(file.error().value == EAGAIN ? ETIMEDOUT : file.error().value);
  return show_as(std::move(socket), file->get(), flags);
}

base::Result<base::UniqueFd> copy_of_bytes(const std::byte* data, const FileStat& stat, int flags) {
  const long made = sys::memfd_create(CopyName(stat).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (sys::failed(made)) return base::fail(static_cast<int>(-made));
  base::UniqueFd file(static_cast<int>(made));
  for (std::uint64_t at = 0; at < stat.size;) {
    const long n =
        sys::pwrite(file.get(), data + at, stat.size - at, static_cast<std::int64_t>(at));
    if (sys::failed(n) && n != -EINTR) return base::fail(static_cast<int>(-n));
    if (n > 0) at += static_cast<std::uint64_t>(n);
  }
  seal_copy(file.get(), stat);
  const int fd = file.get();
  return show_as(std::move(file), fd, flags);
}

void seal_copy(int fd, const FileStat& stat) {
  const auto& time = stat.modified;
  const struct ::timespec times[2] = {{time.seconds, static_cast<long>(time.nanoseconds)},
                                      {time.seconds, static_cast<long>(time.nanoseconds)}};
  sys::raw(SYS_utimensat, fd, 0, sys::arg(times), 0);
  sys::raw(SYS_fchmod, fd, static_cast<long>(stat.mode & 07777));
  sys::fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
}

base::Result<base::UniqueFd> listen_for_copies(const std::string& socket_path) {
  sockaddr_un address{};
  if (!make_address(socket_path, address)) return base::fail(ENAMETOOLONG);
  const long made = sys::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (sys::failed(made)) return base::fail(static_cast<int>(-made));
  base::UniqueFd listener(static_cast<int>(made));
  sys::unlink(socket_path.c_str());
  const mode_t former = static_cast<mode_t>(sys::raw(SYS_umask, 0077));
  const long bound = sys::bind(listener.get(), &address, sizeof address);
  sys::raw(SYS_umask, static_cast<long>(former));
  if (sys::failed(bound)) return base::fail(static_cast<int>(-bound));
  constexpr int k_backlog = 128;
  const long listens = sys::listen(listener.get(), k_backlog);
  if (sys::failed(listens)) return base::fail(static_cast<int>(-listens));
  return listener;
}

base::Result<base::UniqueFd> accept_copy(int listener, MailTicket& ticket) {
  const long got = sys::accept(listener, SOCK_CLOEXEC);
  if (sys::failed(got)) return base::fail(static_cast<int>(-got));
  base::UniqueFd asker(static_cast<int>(got));
  // The timeout is short, because an asker sends its ticket immediately after it has connected.
  const timeval limit{1, 0};
  sys::raw(SYS_setsockopt, asker.get(), SOL_SOCKET, SO_RCVTIMEO, sys::arg(&limit), sizeof limit);
  if (!is_of_this_user(asker.get()) ||
      sys::recv(asker.get(), &ticket, sizeof ticket, 0) != static_cast<long>(sizeof ticket))
    return base::fail(EAGAIN);
  return asker;
}

bool send_copy(int socket, int fd) {
  int error = fd < 0 ? ESTALE : 0;
  iovec part{&error, sizeof error};
  Control control{};
  msghdr message = message_of(part, control);
  if (fd >= 0) {
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  } else {
    message.msg_control = nullptr;
    message.msg_controllen = 0;
  }
  return !sys::failed(sys::raw(SYS_sendmsg, socket, sys::arg(&message), MSG_NOSIGNAL));
}

}  // namespace cube::cache
