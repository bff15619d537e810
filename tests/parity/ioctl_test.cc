// ioctl, and the calls that query a terminal.
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "tests/support/parity_case.h"

PARITY(Ioctl, QuestionsThatEveryOpenAsksStayServed) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  struct termios terminal {};
  CALL(ioctl(fd, TCGETS, &terminal));
  EXPECT_EQ(errno, ENOTTY);
  CALL(tcgetattr(fd, &terminal));
  struct winsize window {};
  CALL(ioctl(fd, TIOCGWINSZ, &window));
  int n = 99;
  CALL(ioctl(fd, FIONREAD, &n));
  t.line(std::to_string(n));
  CALL(lseek(fd, 30, SEEK_SET));
  CALL(ioctl(fd, FIONREAD, &n));
  t.line(std::to_string(n));
  CALL(ioctl(fd, FIOCLEX));
  CALL(fcntl(fd, F_GETFD));
  CALL(ioctl(fd, FIONCLEX));
  CALL(fcntl(fd, F_GETFD));
  t.expect_served(fd);
  CALL(close(fd));
  CALL(ioctl(fd, TCGETS, &terminal));
  CALL(ioctl(fd, FIONREAD, &n));
}

PARITY(Ioctl, BeyondTheEndAndBadPointers) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  int n = 99;
  CALL(lseek(fd, 100, SEEK_SET));
  CALL(ioctl(fd, FIONREAD, &n));
  t.line(std::to_string(n));
  CALL(lseek(fd, 150, SEEK_SET));
  CALL(ioctl(fd, FIONREAD, &n));
  t.line(std::to_string(n));
  CALL(lseek(fd, 1L << 33, SEEK_SET));
  CALL(ioctl(fd, FIONREAD, &n));
  t.line(std::to_string(n));
  CALL(ioctl(fd, FIONREAD, reinterpret_cast<int*>(0xdead000000000000ULL)));
  CALL(ioctl(fd, FIONREAD, nullptr));
  CALL(close(fd));
}

PARITY(Ioctl, CommandsOfTheFileSystem) {
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  int n = 0;
  CALL(ioctl(fd, FIGETBSZ, &n));
  t.line(std::to_string(n));
  long flags = 0;
  CALL(ioctl(fd, FS_IOC_GETFLAGS, &flags));
  t.line(std::to_string(flags));
  n = 1;
  CALL(ioctl(fd, FIONBIO, &n));
  CALL(fcntl(fd, F_GETFL));
  // Does not compare `flags`: the size is 0 until the kernel has allocated blocks on the disk.
  CALL(ioctl(fd, FIOQSIZE, &flags));
  CALL(ioctl(fd, 0x12345678, &n));
  CALL(ioctl(fd, TCSETS, nullptr));
  CALL(ioctl(fd, TIOCGPGRP, &n));
  CALL(ioctl(fd, FICLONE, fd));
  char got[10];
  CALL(read(fd, got, 10));
  CALL(close(fd));
}

// As in `cp --reflink`, the served file is the argument of the ioctl, not its fd.
PARITY(Ioctl, ServedFilesInTheArgument) {
  const int from = CALL(open(t.file("from", 8192), O_RDONLY));
  const int to = CALL(open(t / "to", O_RDWR | O_CREAT, 0644));
  CALL(ioctl(to, FICLONE, from));
  CALL(lseek(from, 0, SEEK_CUR));
  CALL(close(from));
  const int ranged = CALL(open(t / "from", O_RDONLY));
  file_clone_range range{ranged, 0, 4096, 0};
  CALL(ioctl(to, FICLONERANGE, &range));
  CALL(ioctl(to, FICLONERANGE, nullptr));
  CALL(close(ranged));
  const int same = CALL(open(t / "from", O_RDONLY));
  alignas(
      file_dedupe_range) char room[sizeof(file_dedupe_range) + sizeof(file_dedupe_range_info)] = {};
  auto* const dedupe = reinterpret_cast<file_dedupe_range*>(room);
  dedupe->src_length = 4096;
  dedupe->dest_count = 1;
  dedupe->info[0].dest_fd = same;
  CALL(ioctl(to, FIDEDUPERANGE, dedupe));
  t.line("status " + std::to_string(dedupe->info[0].status));
  CALL(ioctl(to, LOOP_SET_FD, same));
  CALL(close(same));
  CALL(close(to));
}

PARITY(Ioctl, TerminalFunctions) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  struct termios terminal {};
  CALL(tcgetattr(fd, nullptr));
  CALL(tcsetattr(fd, TCSANOW, &terminal));
  CALL(tcgetpgrp(fd));
  CALL(tcflush(fd, TCIFLUSH));
  CALL(tcdrain(fd));
  CALL(tcgetattr(-1, &terminal));
  CALL(close(fd));
}
