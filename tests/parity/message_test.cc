// Fds of served files are sent through sockets, one or many at a time, to this process and to a
// child.
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/parity/fd_message.h"
#include "tests/support/parity_case.h"

using cube::parity::FdMessage;

namespace {

void show(cube::parity::Case& t, const char* label, int fd) {
  char got[8] = {};
  t.line(std::string(label) + " " + std::to_string(fd));
  CALL(read(fd, got, 8));
  t.bytes(label, got, 8);
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(fcntl(fd, F_GETFD));
}

}  // namespace

PARITY(Message, ManyFdsInOne) {
  int pair[2];
  CALL(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  t.file("a", 300);
  t.file("b", 300);
  const int a = CALL(open(t / "a", O_RDONLY));
  const int b = CALL(open(t / "b", O_RDONLY | O_CLOEXEC));
  const int copy = CALL(dup(a));
  CALL(lseek(a, 40, SEEK_SET));
  FdMessage out;
  out.carry({a, b, copy, a});
  CALL(sendmsg(pair[0], &out.head, 0));
  CALL(close(a));
  CALL(close(b));
  FdMessage in;
  CALL(recvmsg(pair[1], &in.head, MSG_CMSG_CLOEXEC));
  for (const int fd : in.fds()) show(t, "received", fd);
  show(t, "kept", copy);
  // The next message arrives over an fd that was served a moment ago, and in too little room.
  const int c = CALL(open(t / "b", O_RDONLY));
  out.carry({c, c});
  CALL(sendmsg(pair[0], &out.head, 0));
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  FdMessage small(1);
  CALL(recvmsg(pair[1], &small.head, 0));
  t.line("truncated " + std::to_string(small.head.msg_flags & MSG_CTRUNC));
  for (const int fd : small.fds()) show(t, "received", fd);
}

PARITY(Message, ControlDataOfAnImpossibleLengthIsRefused) {
  int pair[2];
  CALL(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  t.file("a", 300);
  FdMessage out;
  out.carry({CALL(open(t / "a", O_RDONLY))});
  cmsghdr* const control = CMSG_FIRSTHDR(&out.head);
  for (const std::size_t length : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 40}) {
    control->cmsg_len = length;
    CALL(sendmsg(pair[0], &out.head, 0));
    EXPECT_EQ(errno, EINVAL);
  }
}

PARITY(Message, ManyMessagesTogether) {
  int pair[2];
  CALL(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  t.file("a", 300);
  t.file("b", 300);
  FdMessage out[2];
  out[0].carry({CALL(open(t / "a", O_RDONLY))});
  out[1].carry({CALL(open(t / "b", O_RDONLY)), CALL(open("/dev/null", O_RDONLY))});
  mmsghdr both[2] = {{out[0].head, 0}, {out[1].head, 0}};
  CALL(sendmmsg(pair[0], both, 2, 0));
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  FdMessage in[2];
  mmsghdr got[2] = {{in[0].head, 0}, {in[1].head, 0}};
  CALL(recvmmsg(pair[1], got, 2, MSG_DONTWAIT, nullptr));
  for (int i = 0; i < 2; ++i) {
    in[i].head = got[i].msg_hdr;
    for (const int fd : in[i].fds()) show(t, "received", fd);
  }
  CALL(sendmmsg(-1, both, 2, 0));
  CALL(sendmmsg(pair[0], nullptr, 1, 0));
  CALL(recvmmsg(pair[1], got, 2, MSG_DONTWAIT, nullptr));
  EXPECT_EQ(errno, EAGAIN);
}

PARITY(Message, ToAChildWithASharedOffset) {
  int pair[2];
  CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  CALL(lseek(fd, 10, SEEK_SET));
  FdMessage out;
  out.carry({fd});
  CALL(sendmsg(pair[0], &out.head, 0));
  t.in_child([&] {
    FdMessage in;
    CALL(recvmsg(pair[1], &in.head, 0));
    for (const int received : in.fds()) show(t, "received", received);
    // The child sends one of its own fds back to the parent.
    const int own = CALL(open(t / "a", O_RDONLY));
    CALL(lseek(own, 100, SEEK_SET));
    FdMessage back;
    back.carry({own});
    CALL(sendmsg(pair[1], &back.head, 0));
    CALL(lseek(own, 8, SEEK_CUR));
  });
  FdMessage in;
  CALL(recvmsg(pair[0], &in.head, MSG_DONTWAIT));
  for (const int received : in.fds()) show(t, "from the child", received);
  show(t, "own", fd);
}

PARITY(Message, SocketCallsOnAFileAreRefused) {
  const char* const path = t.file("a", 300);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  char byte = 'x';
  int option = 0;
  socklen_t n = sizeof option;
  sockaddr address{};
  socklen_t length = sizeof address;
  FdMessage message;
  message.head.msg_controllen = 0;
  message.head.msg_control = nullptr;
  mmsghdr many{message.head, 0};
  CALL(send(fresh(), &byte, 1, 0));
  EXPECT_EQ(errno, ENOTSOCK);
  CALL(sendto(fresh(), &byte, 1, 0, nullptr, 0));
  CALL(sendmsg(fresh(), &message.head, 0));
  CALL(sendmmsg(fresh(), &many, 1, 0));
  CALL(recv(fresh(), &byte, 1, 0));
  CALL(recvfrom(fresh(), &byte, 1, 0, nullptr, nullptr));
  CALL(recvmsg(fresh(), &message.head, 0));
  CALL(recvmmsg(fresh(), &many, 1, 0, nullptr));
  CALL(bind(fresh(), &address, sizeof address));
  CALL(connect(fresh(), &address, sizeof address));
  CALL(listen(fresh(), 1));
  CALL(accept(fresh(), nullptr, nullptr));
  CALL(accept4(fresh(), nullptr, nullptr, 0));
  CALL(getsockopt(fresh(), SOL_SOCKET, SO_TYPE, &option, &n));
  CALL(setsockopt(fresh(), SOL_SOCKET, SO_REUSEADDR, &option, sizeof option));
  CALL(getsockname(fresh(), &address, &length));
  CALL(getpeername(fresh(), &address, &length));
  CALL(shutdown(fresh(), SHUT_RD));
  CALL(sockatmark(fresh()));
}
