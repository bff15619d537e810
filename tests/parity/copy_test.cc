// Calls that move bytes between two fds, wait for fds, pass fds on, or read asynchronously.
#include <aio.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "tests/parity/fd_message.h"
#include "tests/support/parity_case.h"

namespace {

void show_rest(cube::parity::Case& t, int fd) {
  static char got[70000];
  CALL(lseek(fd, 0, SEEK_CUR));
  const ssize_t n = CALL(read(fd, got, sizeof got));
  t.bytes("rest", got, n > 0 ? n : 0);
}

}  // namespace

PARITY(Copy, Sendfile) {
  const int from = CALL(open(t.file("a", 60000), O_RDONLY));
  const int to = CALL(memfd_create("x", 0));
  CALL(lseek(from, 10, SEEK_SET));
  CALL(sendfile(to, from, nullptr, 1000));
  CALL(lseek(from, 0, SEEK_CUR));
  off_t at = 5000;
  CALL(sendfile(to, from, &at, 100000));
  t.line(std::to_string(at));
  at = 0;
  CALL(sendfile64(to, from, &at, 5));
  const int other = CALL(open(t / "a", O_RDONLY));
  CALL(syscall(SYS_sendfile, to, other, nullptr, 100L));
  CALL(close(other));
  CALL(lseek(to, 0, SEEK_SET));
  show_rest(t, to);
  show_rest(t, from);
  CALL(sendfile(from, to, nullptr, 10));
  CALL(sendfile(to, -1, nullptr, 10));
  at = -1;
  CALL(sendfile(to, from, &at, 10));
  CALL(close(from));
  CALL(close(to));
}

PARITY(Copy, CopyFileRange) {
  const int from = CALL(open(t.file("a", 60000), O_RDONLY));
  const int to = CALL(open(t / "out", O_RDWR | O_CREAT, 0644));
  CALL(lseek(from, 10, SEEK_SET));
  CALL(copy_file_range(from, nullptr, to, nullptr, 1000, 0));
  CALL(lseek(from, 0, SEEK_CUR));
  off_t from_at = 50000, to_at = 100;
  CALL(copy_file_range(from, &from_at, to, &to_at, 100000, 0));
  t.line(std::to_string(from_at) + " " + std::to_string(to_at));
  CALL(copy_file_range(to, nullptr, from, nullptr, 10, 0));
  EXPECT_EQ(errno, EBADF);
  CALL(copy_file_range(from, nullptr, to, nullptr, 10, 99));
  CALL(lseek(to, 0, SEEK_SET));
  show_rest(t, to);
  CALL(close(from));
  CALL(close(to));
}

PARITY(Copy, SpliceAndTee) {
  const int from = CALL(open(t.file("a", 3000), O_RDONLY));
  int pipe_fds[2], second[2];
  CALL(pipe(pipe_fds));
  CALL(pipe(second));
  CALL(splice(from, nullptr, pipe_fds[1], nullptr, 1000, 0));
  off_t at = 2900;
  CALL(splice(from, &at, pipe_fds[1], nullptr, 1000, 0));
  t.line(std::to_string(at));
  CALL(tee(pipe_fds[0], second[1], 500, 0));
  show_rest(t, pipe_fds[0]);
  show_rest(t, second[0]);
  show_rest(t, from);
  CALL(splice(pipe_fds[0], nullptr, from, nullptr, 10, SPLICE_F_NONBLOCK));
  CALL(tee(from, second[1], 10, 0));
  CALL(vmsplice(from, nullptr, 0, 0));
}

PARITY(Wait, PollAndPpoll) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  const int second = CALL(open(t / "a", O_RDONLY));
  pollfd fds[3] = {{fd, POLLIN | POLLOUT, 0}, {second, POLLIN, 0}, {77, POLLIN, 0}};
  CALL(poll(fds, 3, 0));
  for (const pollfd& p : fds) t.line(std::to_string(p.revents));
  const timespec now{};
  CALL(ppoll(fds, 2, &now, nullptr));
  for (const pollfd& p : fds) t.line(std::to_string(p.revents));
  const int third = CALL(open(t / "a", O_RDONLY));
  fds[0] = {third, POLLIN, 0};
  CALL(ppoll(fds, 1, &now, nullptr));
  t.line(std::to_string(fds[0].revents));
  CALL(poll(nullptr, 1, 0));
  CALL(poll(nullptr, 0, 0));
  show_rest(t, fd);
  CALL(close(fd));
  fds[0] = {fd, POLLIN, 0};
  CALL(poll(fds, 1, 0));
  t.line(std::to_string(fds[0].revents));
}

PARITY(Wait, SelectAndPselect) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  const int second = CALL(open(t / "a", O_RDONLY));
  fd_set r, w, e;
  FD_ZERO(&r);
  FD_ZERO(&w);
  FD_ZERO(&e);
  FD_SET(fd, &r);
  FD_SET(second, &w);
  timeval none{};
  CALL(select(second + 1, &r, &w, &e, &none));
  t.line(std::to_string(FD_ISSET(fd, &r)) + std::to_string(FD_ISSET(second, &w)));
  const int third = CALL(open(t / "a", O_RDONLY));
  FD_ZERO(&r);
  FD_SET(third, &r);
  const timespec now{};
  CALL(pselect(third + 1, &r, nullptr, nullptr, &now, nullptr));
  t.line(std::to_string(FD_ISSET(third, &r)));
  CALL(close(third));
  FD_ZERO(&r);
  FD_SET(third, &r);
  CALL(select(third + 1, &r, nullptr, nullptr, &none));
  EXPECT_EQ(errno, EBADF);
}

PARITY(Wait, ClosedFdsAreRefused) {
  const char* const path = t.file("a", 300);
  const auto closed = [&] {
    const int fd = CALL(open(path, O_RDONLY));
    CALL(close(fd));
    return fd;
  };
  fd_set set;
  timeval none{};
  FD_ZERO(&set);
  int fd = closed();
  FD_SET(fd, &set);
  CALL(select(fd + 1, &set, nullptr, nullptr, &none));
  EXPECT_EQ(errno, EBADF);
  const timespec now{};
  fd = closed();
  CALL(pselect(fd + 1, nullptr, nullptr, &set, &now, nullptr));
  pollfd one{closed(), POLLIN, 0};
  CALL(poll(&one, 1, 0));
  t.line(std::to_string(one.revents));
  one.fd = closed();
  CALL(ppoll(&one, 1, &now, nullptr));
  t.line(std::to_string(one.revents));
  const int epoll = CALL(epoll_create1(0));
  epoll_event event{};
  fd = closed();
  CALL(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

PARITY(Wait, EpollIsAskedOfTheFileItself) {
  const int epoll = CALL(epoll_create1(0));
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  epoll_event event{};
  event.events = EPOLLIN;
  // The call fails with EPERM, except on FUSE, where a file may be polled.
  CALL(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
  CALL(epoll_ctl(fd, EPOLL_CTL_ADD, 0, &event));
  CALL(epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr));
  CALL(epoll_ctl(epoll, EPOLL_CTL_ADD, 99, &event));
  show_rest(t, fd);
}

PARITY(Pass, FdsThroughASocket) {
  int pair[2];
  CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  CALL(lseek(fd, 30, SEEK_SET));
  cube::parity::FdMessage message;
  message.carry({fd});
  CALL(sendmsg(pair[0], &message.head, 0));
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  CALL(recvmsg(pair[1], &message.head, 0));
  const int got = message.fds().at(0);
  t.line("got " + std::to_string(got));
  char bytes[10];
  CALL(read(got, bytes, 10));
  t.bytes("got", bytes, 10);
  CALL(lseek(fd, 0, SEEK_CUR));
  struct stat st {};
  CALL(fstat(got, &st));
  t.stat("fstat", st, t / "a");
  CALL(close(fd));
  show_rest(t, got);
}

PARITY(Pass, ClosedFdDoesNotLeaveTheProcess) {
  int pair[2];
  CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  int fd = CALL(open(t.file("a", 300), O_RDONLY));
  CALL(close(fd));
  cube::parity::FdMessage message;
  message.carry({fd});
  mmsghdr messages[1] = {{message.head, 0}};
  EXPECT_EQ(CALL(sendmsg(pair[0], &message.head, 0)), -1);
  fd = CALL(open(t / "a", O_RDONLY));
  CALL(close(fd));
  EXPECT_EQ(CALL(sendmmsg(pair[0], messages, 1, 0)), -1);
}

PARITY(Aio, ReadsAndErrors) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  char got[50] = {};
  aiocb block{};
  block.aio_fildes = fd;
  block.aio_buf = got;
  block.aio_nbytes = sizeof got;
  block.aio_offset = 10;
  CALL(aio_read(&block));
  const aiocb* blocks[1] = {&block};
  while (aio_error(&block) == EINPROGRESS) aio_suspend(blocks, 1, nullptr);
  CALL(aio_error(&block));
  CALL(aio_return(&block));
  t.bytes("got", got, sizeof got);
  const int second = CALL(open(t / "a", O_RDONLY));
  block = {};
  block.aio_fildes = second;
  block.aio_buf = got;
  block.aio_nbytes = sizeof got;
  block.aio_lio_opcode = LIO_READ;
  aiocb* list[1] = {&block};
  CALL(lio_listio(LIO_WAIT, list, 1, nullptr));
  CALL(aio_return(&block));
  t.bytes("got", got, sizeof got);
  CALL(close(fd));
  CALL(close(second));
}
