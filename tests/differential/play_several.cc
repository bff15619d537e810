// Calls on several fds, and calls that make the kernel wait for a file, lock it or pass it on.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/differential/player.h"

namespace cube::differ {

DIFFER_PLAY(sendfile) {
  const int to = p.fd(a[0]), from = p.fd(a[1]);
  off_t at = a[2];
  p.content_changed(to);
  const bool with_offset = a[4] % 2 == 0;
  const Result r = p.call([&] {
    return sendfile(to, from, with_offset ? &at : nullptr, static_cast<std::size_t>(a[3]));
  });
  p.say("sendfile({}, {}, {}, {}) = {}, {}", to, from, with_offset ? a[2] : -1, a[3], r.text(), at);
}

DIFFER_PLAY(copy_file_range) {
  const int from = p.fd(a[0]), to = p.fd(a[1]);
  off64_t from_at = a[2], to_at = a[2] / 2;
  p.content_changed(to);
  const Result r = p.call([&] {
    return copy_file_range(from, a[4] % 2 == 0 ? &from_at : nullptr, to,
                           a[4] % 4 < 2 ? &to_at : nullptr, static_cast<std::size_t>(a[3]), 0);
  });
  p.say("copy_file_range({}, {}, {}, {}) {} = {}, {} {}", from, to, a[2], a[3], a[4], r.text(),
        from_at, to_at);
}

DIFFER_PLAY(splice) {
  const int from = p.fd(a[0]), to = p.fd(a[1]);
  off64_t at = a[3];
  p.content_changed(to);
  const Result r = p.call([&] {
    return splice(from, a[4] % 2 == 0 ? &at : nullptr, to, nullptr, static_cast<std::size_t>(a[2]),
                  SPLICE_F_NONBLOCK);
  });
  p.say("splice({}, {}, {}, {}) = {}, {}", from, to, a[2], a[4] % 2, r.text(), at);
}

DIFFER_PLAY(tee) {
  const int from = p.fd(a[0]), to = p.fd(a[1]);
  const Result r =
      p.call([&] { return tee(from, to, static_cast<std::size_t>(a[2]), SPLICE_F_NONBLOCK); });
  p.say("tee({}, {}, {}) = {}", from, to, a[2], r.text());
}

DIFFER_PLAY(flock) {
  constexpr int operations[] = {LOCK_SH, LOCK_EX, LOCK_UN, LOCK_EX};
  const int fd = p.fd(a[0]), operation = operations[a[1] % 4] | LOCK_NB;
  // Each lock of a file of a pack is made on a new copy (SEMANTICS, Packs).
  if (p.tree().is_packed() && (operation & LOCK_EX) != 0) return;
  p.say("flock({}, {}) = {}", fd, operation, p.call([&] { return flock(fd, operation); }).text());
}

// Locks of open files, not of processes (SEMANTICS, Limits: "an fcntl lock on a file that is open
// twice").
DIFFER_PLAY(ofd_lock) {
  constexpr short types[] = {F_RDLCK, F_WRLCK, F_UNLCK, F_RDLCK};
  const int fd = p.fd(a[0]), command = a[1] < 6 ? F_OFD_SETLK : F_OFD_GETLK;
  struct ::flock lock {};
  lock.l_type = types[a[1] % 4];
  lock.l_whence = SEEK_SET;
  lock.l_start = a[2];
  lock.l_len = a[3];
  const Result r = p.call([&] { return fcntl(fd, command, &lock); });
  p.say("fcntl({}, {}, {} [{}, +{})) = {}, {} [{}, +{})", fd, command, types[a[1] % 4], a[2], a[3],
        r.text(), lock.l_type, static_cast<long>(lock.l_start), static_cast<long>(lock.l_len));
}

DIFFER_PLAY(poll) {
  const int first = p.fd(a[0]), second = p.fd(a[1]);
  if (a[2] % 3 == 0) {
    const ::timespec at_once{};
    ::pollfd both[2] = {{first, POLLIN | POLLOUT, 0}, {second, POLLIN, 0}};
    const Result r =
        p.call([&] { return a[2] < 4 ? poll(both, 2, 0) : ppoll(both, 2, &at_once, nullptr); });
    return p.say("poll({}, {}) = {}, {:x} {:x}", first, second, r.text(), both[0].revents,
                 both[1].revents);
  }
  if (a[2] % 3 == 1) {
    if (first < 0 || second < 0) return;
    ::fd_set readable, writable;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_SET(first, &readable);
    FD_SET(second, &writable);
    ::timeval at_once{};
    const Result r = p.call([&] {
      return select(std::max(first, second) + 1, &readable, &writable, nullptr, &at_once);
    });
    if (r.failed()) return p.say("select({}, {}) = {}", first, second, r.text());
    return p.say("select({}, {}) = {}, {} {}", first, second, r.text(), FD_ISSET(first, &readable),
                 FD_ISSET(second, &writable));
  }
  const Result made = p.call([&] { return epoll_create1(EPOLL_CLOEXEC); });
  ::epoll_event event{EPOLLIN, {}}, ready{};
  const Result added =
      p.call([&] { return epoll_ctl(static_cast<int>(made.value), EPOLL_CTL_ADD, first, &event); });
  const Result waited =
      p.call([&] { return epoll_wait(static_cast<int>(made.value), &ready, 1, 0); });
  p.say("epoll {} with {}: {}, {} {:x}", made.text(), first, added.text(), waited.text(),
        static_cast<unsigned>(ready.events));
  if (!made.failed()) close(static_cast<int>(made.value));
}

// Sends the fd through a socket to this process, which receives another fd of the same open file.
DIFFER_PLAY(pass_fd) {
  const int fd = p.fd(a[0]);
  int pair[2];
  // Other processes see a directory of a pack as an empty one (SEMANTICS, Packs).
  if (p.is_packed_directory(fd)) return;
  if (p.call([&] {
         return socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
       }).failed())
    return;
  char byte = 'x';
  ::iovec part{&byte, 1};
  alignas(::cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  ::msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ::cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  const Result sent = p.call([&] { return sendmsg(pair[0], &message, 0); });
  int got = -1;
  if (!sent.failed()) {
    message.msg_controllen = sizeof control;
    const Result received = p.call([&] { return recvmsg(pair[1], &message, 0); });
    if (!received.failed() && message.msg_controllen != 0)
      std::memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
  }
  p.say("pass {}: {}, got {}", fd, sent.text(), got);
  close(pair[0]);
  close(pair[1]);
  if (got >= 0) p.fd(a[1]) = got;
}

}  // namespace cube::differ
