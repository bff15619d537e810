// Fds and what they share: the lowest free fd, dup in every form, close in every form, flags.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <random>

#include "tests/support/parity_case.h"

using cube::parity::function;

namespace {

void peek(cube::parity::Case& t, int fd) {
  char got[8] = {};
  CALL(read(fd, got, 8));
  t.bytes("peek", got, 8);
  CALL(lseek(fd, 0, SEEK_CUR));
}

}  // namespace

PARITY(Fd, FdsAreTheLowestFreeInEveryOrder) {
  // Served files, files outside, pipes and dups, opened and closed in a random but fixed order.
  const char* const names[] = {t.file("a"), t.file("b"), t.file("c", 9000)};
  std::mt19937 random(7);
  std::vector<int> open_fds;
  for (int step = 0; step < 400; ++step) {
    const unsigned what = random() % 12;
    if (what < 4 || open_fds.empty()) {
      open_fds.push_back(
          CALL(open(names[random() % 3], O_RDONLY | (random() % 2 ? O_CLOEXEC : 0))));
    } else if (what < 5) {
      open_fds.push_back(CALL(open("/dev/null", O_RDONLY)));
    } else if (what < 6) {
      open_fds.push_back(CALL(dup(open_fds[random() % open_fds.size()])));
    } else if (what < 7) {
      open_fds.push_back(CALL(fcntl(open_fds[random() % open_fds.size()], F_DUPFD, 8)));
    } else {
      const std::size_t i = random() % open_fds.size();
      CALL(close(open_fds[i]));
      open_fds.erase(open_fds.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const int fd : open_fds) CALL(close(fd));
}

PARITY(Fd, EveryMakerOfFdsGetsTheLowest) {
  const char* const path = t.file("a");
  const auto free_one = [&] {
    const int fd = CALL(open(path, O_RDONLY));
    CALL(close(fd));
  };
  int pair[2];
  const auto drop = [&](int fd) { CALL(close(fd)); };
  free_one();
  drop(CALL(socket(AF_UNIX, SOCK_STREAM, 0)));
  free_one();
  CALL(pipe(pair));
  t.line(std::to_string(pair[0]) + " " + std::to_string(pair[1]));
  drop(pair[0]);
  drop(pair[1]);
  free_one();
  CALL(pipe2(pair, O_CLOEXEC));
  t.line(std::to_string(pair[0]) + " " + std::to_string(pair[1]));
  drop(pair[1]);
  drop(pair[0]);
  free_one();
  CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  t.line(std::to_string(pair[0]) + " " + std::to_string(pair[1]));
  drop(pair[0]);
  drop(pair[1]);
  free_one();
  drop(CALL(epoll_create1(0)));
  free_one();
  drop(CALL(eventfd(0, 0)));
  free_one();
  drop(CALL(memfd_create("x", 0)));
  free_one();
  drop(CALL(open("/etc/passwd", O_RDONLY)));
  free_one();
  drop(CALL(open(path, O_RDWR)));
  free_one();
  drop(CALL(open(path, O_PATH)));
  free_one();
  drop(CALL(open(t.root().c_str(), O_RDONLY | O_DIRECTORY)));
  free_one();
  drop(CALL(dup(0)));
  free_one();
  drop(CALL(fcntl(0, F_DUPFD_CLOEXEC, 0)));
  free_one();
  FILE* const stream = STDIO(nullptr, fopen("/etc/passwd", "r"));
  CALL(fileno(stream));
  CALL(fclose(stream));
  free_one();
  FILE* const temporary = STDIO(nullptr, tmpfile());
  CALL(fileno(temporary));
  CALL(fclose(temporary));
  free_one();
  FILE* const process = STDIO(nullptr, popen("true", "r"));
  CALL(fileno(process));
  CALL(pclose(process));
  free_one();
  char pattern[] = "/tmp/cubeshim-parity-mk-XXXXXX";
  const int made = CALL(mkstemp(pattern));
  unlink(pattern);
  drop(made);
  free_one();
  drop(static_cast<int>(CALL(syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY))));
  free_one();
  drop(static_cast<int>(CALL(syscall(SYS_dup, 0))));
  free_one();
  CALL(dup2(0, 3));
  CALL(dup(0));
  CALL(close(3));
  free_one();
}

PARITY(Fd, MakersThatPassLibcByGetAUsableFd) {
  // libc opens these fds itself. They need not be the lowest, but must not be fds of the library.
  const int fd = CALL(open(t.file("a"), O_RDONLY));
  CALL(close(fd));
  FILE* const mounts = fopen("/proc/self/mounts", "r");
  char line[100];
  EXPECT_NE(fgets(line, sizeof line, mounts), nullptr);
  fclose(mounts);
  const int again = CALL(open(t / "a", O_RDONLY));
  peek(t, again);
  CALL(close(again));
}

PARITY(Fd, ClosedTwiceIsBad) {
  const int fd = CALL(open(t.file("a"), O_RDONLY));
  CALL(close(fd));
  EXPECT_EQ(CALL(close(fd)), -1);
  EXPECT_EQ(errno, EBADF);
  CALL(close(-1));
  CALL(close(100000));
  CALL(close(INT32_MAX));
  CALL(close(INT32_MIN));
  const int another = CALL(open(t / "a", O_RDONLY));
  CALL(function<int(int)>("__close")(another));
  CALL(function<int(int)>("__close")(another));
  char byte;
  struct stat st;
  CALL(read(fd, &byte, 1));
  CALL(fstat(fd, &st));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(fcntl(fd, F_GETFD));
  CALL(fcntl(fd, F_GETFL));
  CALL(dup(fd));
  CALL(dup2(fd, fd));
  CALL(dup2(fd, 20));
  CALL(isatty(fd));
  CALL(fcntl(fd, F_DUPFD, 0));
  CALL(fsync(fd));
  CALL(flock(fd, 1));
  CALL(fchdir(fd));
  CALL(openat(fd, "a", O_RDONLY));
  CALL(write(fd, "x", 1));
}

PARITY(Fd, DupSharesTheOffset) {
  const int a = CALL(open(t.file("a", 100), O_RDONLY));
  const int b = CALL(dup(a));
  t.expect_served(a);
  t.expect_served(b);
  peek(t, a);
  peek(t, b);
  CALL(lseek(b, 50, SEEK_SET));
  peek(t, a);
  const int other = CALL(open(t / "a", O_RDONLY));
  peek(t, other);
  CALL(close(a));
  peek(t, b);
  CALL(close(b));
  peek(t, other);
  CALL(close(other));
  CALL(dup(-1));
  CALL(dup(b));
}

PARITY(Fd, Dup2ReplacesAnOpenFd) {
  for (const char* name : {"dup2", "__dup2"}) {
    auto* const dup_to = function<int(int, int)>(name);
    t.line(name);
    const int a = CALL(open(t.file(std::string("a") + name, 100), O_RDONLY));
    const int b = CALL(open(t.file(std::string("b") + name, 100), O_RDONLY));
    const int null = CALL(open("/dev/null", O_RDONLY));
    peek(t, a);
    CALL(dup_to(a, b));
    peek(t, b);
    CALL(dup_to(a, a));
    CALL(dup_to(a, 30));
    peek(t, 30);
    CALL(dup_to(a, null));
    peek(t, null);
    const int null2 = CALL(open("/dev/null", O_RDONLY));
    CALL(dup_to(null2, a));
    char byte;
    CALL(read(a, &byte, 1));
    peek(t, b);
    CALL(dup_to(a, -1));
    CALL(dup_to(-1, a));
    CALL(dup_to(b, -1));
    CALL(dup_to(b, 1 << 30));
    CALL(dup_to(99, b));
    peek(t, b);
    for (const int fd : {a, b, null, null2, 30}) CALL(close(fd));
  }
}

PARITY(Fd, Dup3SetsCloseOnExec) {
  const int a = CALL(open(t.file("a", 100), O_RDONLY));
  CALL(dup3(a, 20, O_CLOEXEC));
  CALL(fcntl(20, F_GETFD));
  CALL(dup3(a, 21, 0));
  CALL(fcntl(21, F_GETFD));
  CALL(dup3(a, a, 0));
  EXPECT_EQ(errno, EINVAL);
  CALL(dup3(a, 22, O_NONBLOCK));
  CALL(dup3(a, 22, -1));
  CALL(dup3(-1, -1, 0));
  CALL(dup3(-1, 22, 0));
  CALL(dup3(-1, 20, 0));
  CALL(dup3(a, -1, 0));
  peek(t, 20);
  peek(t, 21);
  for (const int fd : {a, 20, 21}) CALL(close(fd));
}

PARITY(Fd, DupfdTakesTheLowestFromThere) {
  const int a = CALL(open(t.file("a", 100), O_RDONLY));
  for (const char* name : {"fcntl", "fcntl64", "__fcntl"}) {
    auto* const control = function<int(int, int, ...)>(name);
    t.line(name);
    const int b = CALL(control(a, F_DUPFD, 10));
    const int c = CALL(control(a, F_DUPFD, 10));
    const int d = CALL(control(a, F_DUPFD_CLOEXEC, 0));
    for (const int fd : {b, c, d}) {
      CALL(control(fd, F_GETFD));
      CALL(control(fd, F_GETFL));
      peek(t, fd);
    }
    t.expect_served(c);
    CALL(control(a, F_DUPFD, -1));
    CALL(control(a, F_DUPFD, 1 << 30));
    CALL(control(a, F_DUPFD, 1L << 32));
    for (const int fd : {b, c, d}) CALL(close(fd));
  }
  CALL(close(a));
  CALL(fcntl(a, F_DUPFD, 0));
}

// The kernel's value; libc for 64 bits defines it as 0.
#if defined(__aarch64__)
constexpr int k_large_file = 0400000;
#else
constexpr int k_large_file = 0100000;
#endif

PARITY(Fd, FlagsOfTheFd) {
  for (const int flags :
       {0, O_CLOEXEC, O_NONBLOCK, O_APPEND, O_NOFOLLOW, O_SYNC, k_large_file, O_NOCTTY}) {
    t.line("flags " + std::to_string(flags));
    const int fd = CALL(open(t.file("f" + std::to_string(flags)), O_RDONLY | flags));
    t.expect_served(fd);
    CALL(fcntl(fd, F_GETFL));
    CALL(fcntl(fd, F_GETFD));
    CALL(fcntl(fd, F_SETFD, FD_CLOEXEC));
    CALL(fcntl(fd, F_GETFD));
    const int copy = CALL(dup(fd));
    CALL(fcntl(copy, F_GETFD));
    CALL(fcntl(copy, F_GETFL));
    CALL(fcntl(fd, F_SETFD, 0));
    CALL(fcntl(fd, F_GETFD));
    CALL(fcntl(fd, F_SETFD, 6));
    CALL(fcntl(fd, F_GETFD));
    t.expect_served(fd);
    CALL(fcntl(fd, F_SETFL, O_NONBLOCK));
    CALL(fcntl(fd, F_GETFL));
    CALL(fcntl(copy, F_GETFL));
    CALL(fcntl(fd, F_SETFL, 0));
    CALL(fcntl(fd, F_GETFL));
    peek(t, fd);
    CALL(fcntl(fd, 9999, 0));
    CALL(close(copy));
    CALL(close(fd));
  }
}

PARITY(Fd, OddCommandsOfFcntl) {
  const int fd = CALL(open(t.file("a"), O_RDONLY));
  CALL(fcntl(fd, F_GETOWN));
  CALL(fcntl(fd, F_GETSIG));
  CALL(fcntl(fd, F_GETPIPE_SZ));
  CALL(fcntl(fd, F_GET_SEALS));
  CALL(fcntl(fd, F_GETLEASE));
  CALL(fcntl(fd, F_NOTIFY, 0));
  std::uint64_t hint = 9;
  CALL(fcntl(fd, F_GET_RW_HINT, &hint));
  t.line(std::to_string(hint));
  peek(t, fd);
  CALL(close(fd));
}

PARITY(Fd, CloseRangeClosesServedAndPlain) {
  const int first = CALL(open(t.file("a", 100), O_RDONLY));
  const int plain = CALL(open("/dev/null", O_RDONLY));
  const int last = CALL(open(t.file("b", 100), O_RDONLY));
  const int after = CALL(open(t.file("c", 100), O_RDONLY));
  CALL(close_range(first, last, 0));
  char byte;
  for (const int fd : {first, plain, last, after}) CALL(read(fd, &byte, 1));
  CALL(open(t / "b", O_RDONLY));
  CALL(open("/dev/null", O_RDONLY));
  CALL(close_range(5, 3, 0));
  CALL(close_range(3, 100, 64));
  CALL(close_range(3, 100, CLOSE_RANGE_CLOEXEC));
  for (int fd = 3; fd < 7; ++fd) CALL(fcntl(fd, F_GETFD));
  peek(t, 3);
  CALL(close_range(3, ~0U, 0));
  for (int fd = 3; fd < 7; ++fd) CALL(fcntl(fd, F_GETFD));
  CALL(open(t / "a", O_RDONLY));
}

PARITY(Fd, CloseRangeLeavesAFreeFdFree) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  CALL(close(fd));
  CALL(close_range(3, 1000, 0));
  CALL(open("/dev/null", O_RDONLY));
  CALL(open(t / "a", O_RDONLY));
  CALL(close(3));
  CALL(close_range(4, ~0U, CLOSE_RANGE_CLOEXEC));
  CALL(fcntl(4, F_GETFD));
  CALL(open(t / "a", O_RDONLY));
}

PARITY(Fd, CloseRangeOnEverythingWithUnshare) {
  t.in_child([&] {
    const int fd = CALL(open(t.file("a", 100), O_RDONLY));
    const int kept = CALL(open(t / "a", O_RDONLY));
    CALL(close_range(fd, fd, CLOSE_RANGE_UNSHARE));
    char byte;
    CALL(read(fd, &byte, 1));
    peek(t, kept);
    CALL(open(t / "a", O_RDONLY));
  });
}

PARITY(Fd, ClosefromClosesTheRest) {
  const char* const path = t.file("a", 100);
  // closefrom closes the log's pipe, too, so the exit status is the result.
  const int status = t.in_child([&] {
    const int kept = open(path, O_RDONLY);
    open("/dev/null", O_RDONLY);
    open(path, O_RDONLY);
    closefrom(kept + 1);
    char got[8];
    const bool reads = read(kept, got, 8) == 8 &&
                       cube::parity::content_of("a", 100).starts_with(std::string(got, 8));
    const bool closed = fcntl(kept + 1, F_GETFD) < 0 && errno == EBADF &&
                        read(kept + 2, got, 1) < 0 && errno == EBADF;
    const bool lowest = open(path, O_RDONLY) == kept + 1 && read(kept + 1, got, 8) == 8;
    _exit((reads ? 1 : 0) | (closed ? 2 : 0) | (lowest ? 4 : 0));
  });
  EXPECT_EQ(status, 7 << 8);
}

PARITY(Fd, FdTakenOverByAPlainFileIsPlain) {
  const int served = CALL(open(t.file("a", 100), O_RDONLY));
  const int null = CALL(open("/dev/null", O_RDONLY));
  CALL(close(served));
  const int reused = CALL(dup(null));
  char byte;
  CALL(read(reused, &byte, 1));
  CALL(close(reused));
  const int again = CALL(open(t / "a", O_RDONLY));
  peek(t, again);
  int pair[2];
  CALL(close(again));
  CALL(pipe(pair));
  CALL(write(pair[1], "pipe", 4));
  char got[8] = {};
  CALL(read(pair[0], got, 8));
  t.bytes("got", got, 8);
  CALL(lseek(pair[0], 0, SEEK_CUR));
}

PARITY(Fd, TerminalQuestionsAreAnswered) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  CALL(isatty(fd));
  EXPECT_EQ(errno, ENOTTY);
  t.expect_served(fd);
  CALL(ttyname(fd));
  CALL(isatty(-1));
  CALL(close(fd));
  CALL(isatty(fd));
  EXPECT_EQ(errno, EBADF);
}
