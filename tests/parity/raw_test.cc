// syscall(2) with the numbers of calls that the kernel would apply to the placeholder.
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <thread>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

PARITY(Raw, ReadsThroughSyscall) {
  char got[20] = {};
  iovec part{got, 20};
  struct stat st {};
  struct statx x {};
  int fd = CALL(open(t.file("a", 300), O_RDONLY));
  CALL(read(fd, got, 5));
  CALL(syscall(SYS_read, fd, got, 10L));
  t.bytes("read", got, 10);
  CALL(lseek(fd, 0, SEEK_CUR));
  for (int which = 0; which < 12; ++which) {
    t.line(std::to_string(which));
    fd = CALL(open(t / "a", O_RDONLY));
    switch (which) {
      case 0: CALL(syscall(SYS_pread64, fd, got, 10L, 5L)); break;
      case 1: CALL(syscall(SYS_readv, fd, &part, 1L)); break;
      case 2: CALL(syscall(SYS_preadv, fd, &part, 1L, 7L, 0L)); break;
      case 3: CALL(syscall(SYS_lseek, fd, 7L, 0L)); break;
      case 4:
        CALL(syscall(SYS_fstat, fd, &st));
        t.stat("fstat", st, t / "a");
        break;
      case 5:
        CALL(syscall(SYS_newfstatat, fd, "", &st, static_cast<long>(AT_EMPTY_PATH)));
        t.stat("fstatat", st, t / "a");
        break;
      case 6:
        CALL(syscall(SYS_statx, fd, "", static_cast<long>(AT_EMPTY_PATH), 0x7ffL, &x));
        t.line(std::to_string(x.stx_size));
        break;
      case 7:
        CALL(syscall(SYS_ioctl, fd, 0x541BL /* FIONREAD */, got));
        t.bytes("FIONREAD", got, 4);
        break;
      case 8: CALL(syscall(SYS_fcntl, fd, static_cast<long>(F_GETFL))); break;
      case 9: CALL(syscall(SYS_fadvise64, fd, 0L, 0L, 0L)); break;
      case 10: CALL(syscall(SYS_fsync, fd)); break;
      case 11: CALL(syscall(SYS_write, fd, "x", 1L)); break;
    }
    t.bytes("got", got, 10);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(read(fd, got, 3));
    CALL(close(fd));
  }
}

PARITY(Raw, CloseRangeWithUnshareThroughSyscall) {
  const auto peek = [&](int fd) {
    char got[5] = {};
    CALL(read(fd, got, sizeof got));
    t.bytes("got", got, sizeof got);
  };
  t.in_child([&] {
    t.file("c", 300);
    const int fd = CALL(open(t.file("a", 100), O_RDONLY));
    const int other = CALL(open(t.file("b", 200), O_RDONLY));
    std::thread([&] {
      CALL(syscall(SYS_close_range, static_cast<long>(fd), static_cast<long>(other),
                   static_cast<long>(CLOSE_RANGE_UNSHARE)));
      peek(CALL(open(t / "c", O_RDONLY)));
      peek(other);
    }).join();
    for (const int number : {fd, other}) peek(number);
    CALL(open(t / "c", O_RDONLY));
    CALL(close(fd));
    peek(CALL(open(t / "b", O_RDONLY)));
  });
}

PARITY(Raw, FdsThroughSyscall) {
  t.file("a", 300);
  char got[20] = {};
  int fd = CALL(open(t / "a", O_RDONLY));
  CALL(read(fd, got, 5));
  const int copy = CALL(static_cast<int>(syscall(SYS_dup, fd)));
  CALL(read(copy, got, 5));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(syscall(SYS_close, static_cast<long>(fd)));
  CALL(read(fd, got, 5));
  EXPECT_EQ(errno, EBADF);
  CALL(close(copy));
  fd = CALL(open(t / "a", O_RDONLY));
  CALL(syscall(SYS_dup3, fd, 30L, 0L));
  CALL(read(30, got, 5));
  CALL(lseek(fd, 0, SEEK_CUR));
  const int null = CALL(open("/dev/null", O_RDONLY));
  const int other = CALL(open(t / "a", O_RDONLY));
#if defined(SYS_dup2)
  CALL(syscall(SYS_dup2, static_cast<long>(null), static_cast<long>(other)));
#else
  CALL(syscall(SYS_dup3, static_cast<long>(null), static_cast<long>(other), 0L));
#endif
  CALL(read(other, got, 5));
  CALL(syscall(SYS_close_range, 3L, 40L, 0L));
  CALL(read(30, got, 5));
  const int by_number = CALL(static_cast<int>(syscall(SYS_openat, AT_FDCWD, t / "a", 0L)));
  CALL(read(by_number, got, 5));
  const int served = CALL(open(t / "a", O_RDONLY));
  CALL(syscall(SYS_close, static_cast<long>(served)));
  open_how how{};
  const int second =
      CALL(static_cast<int>(syscall(SYS_openat2, AT_FDCWD, t / "a", &how, sizeof how)));
  CALL(read(second, got, 5));
  CALL(syscall(SYS_fcntl, second, static_cast<long>(F_DUPFD), 50L));
  CALL(read(50, got, 5));
  CALL(syscall(SYS_close_range, 3L, ~0UL, 4L));
  CALL(fcntl(second, F_GETFD));
  CALL(syscall(SYS_getpid) == getpid());
  CALL(syscall(99999L));
}

PARITY(Raw, NewCallsConcernTheirOwnFdsAlone) {
  const char* const path = t.file("a", 300);
  const int fd = CALL(open(path, O_RDONLY));
  const int other = CALL(open(path, O_RDONLY));
  const auto leaves_all_as_they_are = [](long number) {
    // Calls that change the identity of the process, and one that takes fds from a structure.
    return number != 445 && number != 446 && number != 460;
  };
  for (long number = 440; number <= 480; ++number) {
    if (!leaves_all_as_they_are(number)) continue;
    t.line(std::to_string(number));
    CALL(syscall(number, -1L, 0L, 0L, 0L, 0L, 0L));
    t.expect_served(fd);
  }
  char got[8];
  CALL(syscall(600L, static_cast<long>(fd), 0L, 0L, 0L, 0L, 0L));
  t.expect_kernel(fd);
  t.expect_served(other);
  CALL(read(other, got, 5));
  CALL(syscall(600L, 0L, 0L, 0L, 0L, 0L, static_cast<long>(other)));
  t.expect_kernel(other);
  CALL(lseek(other, 0, SEEK_CUR));
  CALL(close(other));
  CALL(close(fd));
}

PARITY(Raw, PagesOfAServedFileAreInMemory) {
  if (cube::parity::serves_in_blocks())
    GTEST_SKIP() << "a file that is served in blocks has no placeholder";
  constexpr long k_cachestat = 451;
  struct Range {
    std::uint64_t at, length;
  };
  std::uint64_t pages[5];
  const int fd = CALL(open(t.file("a", 10000), O_RDONLY));
  const auto ask = [&](std::uint64_t at, std::uint64_t length, std::uint64_t expected) {
    Range range{at, length};
    const long result = CALL(syscall(k_cachestat, static_cast<long>(fd), &range, pages, 0L));
    if (result != 0 || !t.is_covered() || !cube::parity::is_virtual()) return;
    EXPECT_EQ(pages[0], expected) << at << " " << length;
    EXPECT_EQ(pages[1] + pages[2] + pages[3] + pages[4], 0U);
  };
  ask(0, 0, 3);
  ask(0, 1, 1);
  ask(4095, 2, 2);
  ask(8192, 1 << 20, 1);
  ask(9999, 1, 1);
  ask(1 << 20, 0, 0);
  ask(0, UINT64_MAX, 3);
  t.expect_served(fd);
  Range range{0, 0};
  CALL(syscall(k_cachestat, static_cast<long>(fd), &range, pages, 1L));
  CALL(syscall(k_cachestat, static_cast<long>(fd), nullptr, pages, 0L));
  CALL(syscall(k_cachestat, static_cast<long>(fd), &range, nullptr, 0L));
  CALL(syscall(k_cachestat, -1L, &range, pages, 0L));
  t.expect_served(fd);
  CALL(close(fd));
  CALL(syscall(k_cachestat, static_cast<long>(fd), &range, pages, 0L));
}

PARITY(Raw, ChangesByCallNumberAreSeen) {
  const char* const path = t.file("a", 300);
  struct stat st {};
  const struct timespec times[2] = {{1, 2}, {3, 4}};
  const struct timeval old[2] = {{5, 6}, {7, 8}};
  for (int which = 0; which < 7; ++which) {
    t.line(std::to_string(which));
    CALL(stat(path, &st));
    const int fd = CALL(open(path, O_RDONLY));
    switch (which) {
      case 0: CALL(syscall(SYS_fchmod, static_cast<long>(fd), 0600L)); break;
      case 1: CALL(syscall(SYS_fchown, static_cast<long>(fd), 1L, 1L)); break;
      case 2: CALL(syscall(SYS_utimensat, static_cast<long>(fd), nullptr, times, 0L)); break;
      case 3: CALL(syscall(452L, static_cast<long>(AT_FDCWD), path, 0640L, 0L)); break;
      case 4:
        CALL(syscall(452L, static_cast<long>(fd), "", 0604L, static_cast<long>(AT_EMPTY_PATH)));
        break;
#if defined(SYS_utimes)
      case 5: CALL(syscall(SYS_utimes, path, old)); break;
#endif
      case 6: CALL(syscall(SYS_utimensat, static_cast<long>(AT_FDCWD), nullptr, times, 0L)); break;
    }
    CALL(close(fd));
    CALL(stat(path, &st));
    t.stat("stat", st, path);
  }
}

PARITY(Raw, WritesThroughSyscallAreSeen) {
  const char* const path = t.text("a", "0123456789");
  char got[20] = {};
  CALL(close(CALL(open(path, O_RDONLY))));
  const int writer = CALL(
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, static_cast<long>(O_WRONLY | O_TRUNC))));
  CALL(syscall(SYS_write, writer, "abc", 3L));
  CALL(close(writer));
  int fd = CALL(open(path, O_RDONLY));
  CALL(read(fd, got, 20));
  t.bytes("got", got, 10);
  CALL(close(fd));
  CALL(syscall(SYS_truncate, path, 1L));
  fd = CALL(open(path, O_RDONLY));
  CALL(lseek(fd, 0, SEEK_END));
  CALL(close(fd));
  CALL(syscall(SYS_unlinkat, AT_FDCWD, path, 0L));
  CALL(open(path, O_RDONLY));
}

PARITY(Raw, WorkingDirectoryThroughSyscall) {
  t.in_child([&] {
    t.dir("x");
    t.dir("y");
    t.text("x/f", "in x");
    t.text("y/f", "in y");
    char got[8] = {};
    CALL(chdir(t / "x"));
    CALL(read(CALL(open("f", O_RDONLY)), got, 8));
    t.bytes("x", got, 4);
    CALL(syscall(SYS_chdir, t / "y"));
    CALL(read(CALL(open("f", O_RDONLY)), got, 8));
    t.bytes("y", got, 4);
    const int x = CALL(open(t / "x", O_RDONLY | O_DIRECTORY));
    CALL(syscall(SYS_fchdir, x));
    CALL(read(CALL(open("f", O_RDONLY)), got, 8));
    t.bytes("x", got, 4);
  });
}

PARITY(Raw, PlaceholderNeverReads) {
  if (cube::parity::serves_in_blocks())
    GTEST_SKIP() << "a file that is served in blocks has no placeholder";
  // A call that bypasses the shim fails. It never returns wrong bytes or end of file.
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  if (t.is_covered() && cube::parity::is_virtual()) {
    char got[8];
    EXPECT_EQ(cube::base::sys::read(fd, got, 8), -EBADF);
    EXPECT_LT(cube::base::sys::mmap(nullptr, 100, PROT_READ, MAP_PRIVATE, fd, 0), 0);
    EXPECT_LT(cube::base::sys::openat(fd, "a", O_RDONLY), 0);
    EXPECT_LT(cube::base::sys::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY), 0);
  }
  CALL(close(fd));
}
