// Every command of fcntl, and every ioctl that a regular file supports or refuses. Each is the
// first call on a served file.
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/kcmp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <termios.h>

#include <climits>
#include <csignal>

#include "tests/support/parity_case.h"

namespace {

void then_read(cube::parity::Case& t, int fd) {
  char got[8] = {};
  CALL(read(fd, got, 8));
  t.bytes("got", got, 8);
  CALL(close(fd));
}

}  // namespace

PARITY(Command, FcntlThatAsks) {
  const char* const path = t.file("a", 300);
  for (const int command : {F_GETFD, F_GETFL, F_GETOWN, F_GETSIG, F_GETLEASE, F_GETPIPE_SZ,
                            F_GET_SEALS, 1028 /* F_CREATED_QUERY */, INT_MAX, -1, INT_MIN}) {
    const int fd = CALL(open(path, O_RDONLY));
    t.line("command " + std::to_string(command));
    CALL(fcntl(fd, command, 0));
    then_read(t, fd);
  }
  for (const int command : {F_GET_RW_HINT, F_GET_FILE_RW_HINT}) {
    const int fd = CALL(open(path, O_RDONLY));
    std::uint64_t hint = 99;
    CALL(fcntl(fd, command, &hint));
    t.line("hint " + std::to_string(hint));
    CALL(fcntl(fd, command, nullptr));
    then_read(t, fd);
  }
  const int fd = CALL(open(path, O_RDONLY));
  f_owner_ex owner{F_OWNER_PID, 77};
  CALL(fcntl(fd, F_GETOWN_EX, &owner));
  t.line("owner " + std::to_string(owner.type) + " " + std::to_string(owner.pid));
  CALL(fcntl(fd, F_GETOWN_EX, nullptr));
  then_read(t, fd);
}

PARITY(Command, FcntlThatSets) {
  signal(SIGIO, SIG_IGN);
  signal(SIGUSR1, SIG_IGN);
  const char* const path = t.file("a", 300);
  const auto try_one = [&](const char* what, int command, long argument) {
    t.line(what);
    const int fd = CALL(open(path, O_RDONLY));
    const int copy = CALL(dup(fd));
    CALL(fcntl(fd, command, argument));
    CALL(fcntl(fd, F_GETFL));
    CALL(fcntl(copy, F_GETFL));
    CALL(fcntl(copy, F_GETFD));
    CALL(fcntl(copy, F_GETOWN));
    CALL(close(copy));
    then_read(t, fd);
  };
  try_one("F_SETPIPE_SZ", F_SETPIPE_SZ, 4096);
  try_one("F_ADD_SEALS", F_ADD_SEALS, F_SEAL_SEAL);
  try_one("F_SETOWN", F_SETOWN, 0);
  try_one("F_SETSIG", F_SETSIG, 10);
  try_one("F_SETSIG wrong", F_SETSIG, 9999);
  try_one("F_NOTIFY", F_NOTIFY, DN_MODIFY);
  try_one("F_SETLEASE", F_SETLEASE, F_UNLCK);
  try_one("F_SETLEASE wrong", F_SETLEASE, 77);
  try_one("F_SETFL O_APPEND", F_SETFL, O_APPEND);
  try_one("F_SETFL O_NONBLOCK", F_SETFL, O_NONBLOCK);
  try_one("F_SETFL O_ASYNC", F_SETFL, O_ASYNC);
  try_one("F_SETFL O_NOATIME", F_SETFL, O_NOATIME);
  try_one("F_SETFL O_RDWR", F_SETFL, O_RDWR);
  try_one("F_SETFL O_SYNC", F_SETFL, O_SYNC);
  try_one("F_SETFD", F_SETFD, FD_CLOEXEC);
  try_one("F_SETFD wrong", F_SETFD, 2);
  std::uint64_t hint = RWH_WRITE_LIFE_LONG;
  try_one("F_SET_RW_HINT", F_SET_RW_HINT, reinterpret_cast<long>(&hint));
  hint = 77;
  try_one("F_SET_RW_HINT wrong", F_SET_RW_HINT, reinterpret_cast<long>(&hint));
  // A lease notifies its holder when the file is opened for writing. The kernel manages the lease.
  const int fd = CALL(open(path, O_RDONLY));
  CALL(fcntl(fd, F_SETLEASE, F_RDLCK));
  CALL(fcntl(fd, F_GETLEASE));
  CALL(open(path, O_WRONLY | O_NONBLOCK));
  CALL(fcntl(fd, F_SETLEASE, F_UNLCK));
  CALL(open(path, O_WRONLY | O_NONBLOCK));
}

PARITY(Command, ComparesTheFilesOfTwoFds) {
  const char* const path = t.file("a", 300);
  constexpr int k_query = 1027;  // F_DUPFD_QUERY
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  const auto compare = [&](int one, int two) {
    return static_cast<int>(
        syscall(SYS_kcmp, getpid(), getpid(), static_cast<long>(KCMP_FILE), one, two));
  };
  const int a = fresh(), b = fresh(), copy = CALL(dup(a));
  t.line(compare(a, copy) == 0 ? "one file" : "two files");
  t.line(compare(a, b) == 0 ? "one file" : "two files");
  t.line(compare(fresh(), fresh()) == 0 ? "one file" : "two files");
  const int c = fresh(), d = fresh(), other = CALL(dup(c));
  CALL(fcntl(c, k_query, other));
  CALL(fcntl(fresh(), k_query, d));
  CALL(fcntl(fresh(), k_query, 999));
}

PARITY(Command, IoctlsOfFileSystems) {
  const char* const path = t.file("a", 5000);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  long value = 0;
  int number = 0;
  CALL(ioctl(fresh(), FS_IOC_GETFLAGS, &value));
  t.line(std::to_string(value));
  CALL(ioctl(fresh(), FS_IOC_GETVERSION, &value) >= -1);
  fsxattr extended{};
  CALL(ioctl(fresh(), FS_IOC_FSGETXATTR, &extended));
  t.line(std::to_string(extended.fsx_xflags));
  CALL(ioctl(fresh(), FIBMAP, &number) == 0);
  CALL(ioctl(fresh(), FIGETBSZ, &number));
  t.line(std::to_string(number));
  CALL(ioctl(fresh(), FIOQSIZE, &value));
  t.line(std::to_string(value));
  alignas(fiemap) char room[sizeof(fiemap) + 4 * sizeof(fiemap_extent)] = {};
  auto* const places = reinterpret_cast<fiemap*>(room);
  places->fm_length = FIEMAP_MAX_OFFSET;
  places->fm_flags = FIEMAP_FLAG_SYNC;
  places->fm_extent_count = 4;
  CALL(ioctl(fresh(), FS_IOC_FIEMAP, places));
  t.line("extents " + std::to_string(places->fm_mapped_extents));
  number = 1;
  CALL(ioctl(fresh(), FIOASYNC, &number));
  CALL(ioctl(fresh(), FIONBIO, &number));
  CALL(ioctl(fresh(), FIOCLEX, nullptr));
  CALL(ioctl(fresh(), FIONREAD, &number));
  t.line(std::to_string(number));
  CALL(ioctl(fresh(), BLKGETSIZE64, &value));
  CALL(ioctl(fresh(), TIOCSCTTY, 0));
  CALL(ioctl(fresh(), TIOCGSID, &number));
  CALL(ioctl(fresh(), 0x8904UL /* SIOCGPGRP */, &number));
  CALL(ioctl(fresh(), 0UL, nullptr));
  CALL(ioctl(fresh(), ~0UL, nullptr));
}

PARITY(Command, CopiesByReference) {
  t.file("a", 8192);
  t.file("b", 8192);
  const auto fresh = [&] { return CALL(open(t / "a", O_RDONLY)); };
  const int out = CALL(open(t / "out", O_RDWR | O_CREAT, 0644));
  const int from = fresh();
  CALL(ioctl(out, FICLONE, from));
  file_clone_range range{fresh(), 0, 4096, 0};
  CALL(ioctl(out, FICLONERANGE, &range));
  CALL(ioctl(from, FICLONE, fresh()));
  CALL(ioctl(fresh(), FICLONE, out));
  alignas(
      file_dedupe_range) char room[sizeof(file_dedupe_range) + sizeof(file_dedupe_range_info)] = {};
  auto* const same = reinterpret_cast<file_dedupe_range*>(room);
  same->src_length = 4096;
  same->dest_count = 1;
  same->info[0].dest_fd = fresh();
  CALL(ioctl(fresh(), FIDEDUPERANGE, same));
  t.line("status " + std::to_string(same->info[0].status));
  char got[8];
  CALL(pread(out, got, 8, 0));
}

PARITY(Command, FlagsOfAFileChangeItsTimes) {
  const char* const path = t.file("a", 300);
  CALL(close(CALL(open(path, O_RDONLY))));
  const int fd = CALL(open(path, O_RDONLY));
  int flags = 0;
  struct stat st {};
  CALL(ioctl(fd, FS_IOC_GETFLAGS, &flags));
  flags |= FS_NODUMP_FL;
  CALL(ioctl(fd, FS_IOC_SETFLAGS, &flags));
  CALL(stat(path, &st));
  t.stat("stat", st, path);
  CALL(close(fd));
  const int again = CALL(open(path, O_RDONLY));
  CALL(fstat(again, &st));
  t.stat("fstat", st, path);
}

PARITY(Command, TerminalFunctionsOnEachFd) {
  const char* const path = t.file("a", 300);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  char name[100];
  struct termios terminal {};
  CALL(isatty(fresh()));
  CALL(tcgetattr(fresh(), &terminal));
  CALL(tcsetattr(fresh(), TCSADRAIN, &terminal));
  CALL(tcsetattr(fresh(), 99, &terminal));
  CALL(tcgetpgrp(fresh()));
  CALL(tcsetpgrp(fresh(), getpgrp()));
  CALL(tcgetsid(fresh()));
  CALL(tcflush(fresh(), TCIFLUSH));
  CALL(tcflow(fresh(), TCOOFF));
  CALL(tcdrain(fresh()));
  CALL(tcsendbreak(fresh(), 0));
  CALL(ttyname(fresh()));
  CALL(ttyname_r(fresh(), name, sizeof name));
  CALL(ptsname(fresh()));
  CALL(ptsname_r(fresh(), name, sizeof name));
  CALL(grantpt(fresh()));
  CALL(unlockpt(fresh()));
}
