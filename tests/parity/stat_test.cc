// All forms of stat, by path and by fd. Also access.
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <climits>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

using cube::parity::function;
namespace sys = cube::base::sys;

namespace {

constexpr int k_versions[] = {0, 1,
                              7};  // of the structure; the CPU decides which of them libc knows
struct stat* const k_small = reinterpret_cast<struct stat*>(8);
struct stat* const k_wild = reinterpret_cast<struct stat*>(0xdead000000000000ULL);

// Compares every byte of a statx except atime with the kernel's own answer to the same request.
void compare_statx(cube::parity::Case& t, const char* label, struct statx got, const char* path,
                   int flags, unsigned mask) {
  struct statx kernel {};
  sys::statx(AT_FDCWD, path, flags & ~AT_EMPTY_PATH, mask, &kernel);
  got.stx_atime = kernel.stx_atime = {};
  got.stx_mask &= ~0U;
  t.line(std::string(label) + (std::memcmp(&got, &kernel, sizeof got) == 0 ? ": as the kernel's"
                                                                           : ": not the kernel's"));
  char text[200];
  std::snprintf(
      text, sizeof text,
      "mask=%x kernel=%x mode=%o size=%llu nlink=%u mnt=%d btime=%d dio=%u/%u attributes=%llx",
      got.stx_mask, kernel.stx_mask, got.stx_mode, got.stx_size, got.stx_nlink,
      got.stx_mnt_id == kernel.stx_mnt_id,
      got.stx_btime.tv_sec == kernel.stx_btime.tv_sec &&
          got.stx_btime.tv_nsec == kernel.stx_btime.tv_nsec,
      got.stx_dio_mem_align, got.stx_dio_offset_align, got.stx_attributes);
  t.line(text);
}

}  // namespace

PARITY(Stat, EverySymbolByPath) {
  const char* const path = t.file("a", 5000, 0640);
  CALL(close(CALL(open(path, O_RDONLY))));
  using Stat = int(const char*, struct stat*);
  using XStat = int(int, const char*, struct stat*);
  for (const char* name : {"stat", "stat64", "lstat", "lstat64"}) {
    struct stat st {};
    errno = cube::parity::k_errno_kept;
    t.note(name, function<Stat>(name)(path, &st));
    t.stat(name, st, path);
  }
  for (const char* name : {"__xstat", "__xstat64", "__lxstat", "__lxstat64"}) {
    for (const int version : k_versions) {
      struct stat st {};
      errno = cube::parity::k_errno_kept;
      if (t.note(name, function<XStat>(name)(version, path, &st)) == 0) t.stat(name, st, path);
    }
  }
  for (const char* name : {"fstatat", "fstatat64"}) {
    struct stat st {};
    errno = cube::parity::k_errno_kept;
    t.note(name, function<int(int, const char*, struct stat*, int)>(name)(AT_FDCWD, path, &st, 0));
    t.stat(name, st, path);
  }
  for (const char* name : {"__fxstatat", "__fxstatat64"}) {
    for (const int version : k_versions) {
      struct stat st {};
      errno = cube::parity::k_errno_kept;
      const int result = function<int(int, int, const char*, struct stat*, int)>(name)(
          version, AT_FDCWD, path, &st, 0);
      if (t.note(name, result) == 0) t.stat(name, st, path);
    }
  }
}

PARITY(Stat, EverySymbolByFd) {
  const char* const path = t.file("a", 5000, 0640);
  const int fd = CALL(open(path, O_RDONLY));
  for (const char* name : {"fstat", "fstat64"}) {
    struct stat st {};
    errno = cube::parity::k_errno_kept;
    t.note(name, function<int(int, struct stat*)>(name)(fd, &st));
    t.stat(name, st, path);
  }
  for (const char* name : {"__fxstat", "__fxstat64"}) {
    for (const int version : k_versions) {
      struct stat st {};
      errno = cube::parity::k_errno_kept;
      if (t.note(name, function<int(int, int, struct stat*)>(name)(version, fd, &st)) == 0)
        t.stat(name, st, path);
    }
  }
  struct stat st {};
  CALL(fstatat(fd, "", &st, AT_EMPTY_PATH));
  t.stat("fstatat", st, path);
  struct statx x {};
  CALL(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x));
  compare_statx(t, "statx", x, path, 0, STATX_BASIC_STATS);
  t.expect_served(fd);
  CALL(close(fd));
}

PARITY(Stat, BadFdsAndPointers) {
  const int fd = CALL(open(t.file("a"), O_RDONLY));
  struct stat st {};
  struct statx x {};
  CALL(fstat(-1, &st));
  CALL(fstat(999, &st));
  CALL(fstat(fd, nullptr));
  EXPECT_EQ(errno, EFAULT);
  CALL(fstat(fd, k_wild));
  CALL(fstat(fd, k_small));
  CALL(stat(t / "a", k_small));
  CALL(read(fd, k_small, 10));
  CALL(pread(fd, k_small, 10, 0));
  CALL(stat(t / "a", nullptr));
  CALL(stat(t / "a", k_wild));
  CALL(stat(nullptr, &st));
  CALL(lstat(t / "a", nullptr));
  CALL(fstatat(AT_FDCWD, t / "a", nullptr, 0));
  CALL(fstatat(fd, "", nullptr, AT_EMPTY_PATH));
  CALL(fstatat(fd, "", &st, 0));
  EXPECT_EQ(errno, ENOENT);
  CALL(fstatat(fd, "x", &st, 0));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(fstatat(-1, "", &st, AT_EMPTY_PATH));
  CALL(fstatat(-1, "a", &st, 0));
  CALL(fstatat(AT_FDCWD, t / "a", &st, 0x40000000));
  CALL(fstatat(fd, nullptr, &st, 0));
  CALL(statx(AT_FDCWD, t / "a", 0, STATX_BASIC_STATS, nullptr));
  CALL(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, nullptr));
  CALL(statx(fd, "", 0, STATX_BASIC_STATS, &x));
  CALL(statx(fd, "", AT_EMPTY_PATH, 0x80000000U, &x));
  EXPECT_EQ(errno, EINVAL);
  CALL(statx(AT_FDCWD, t / "a", 0, 0x80000000U, &x));
  CALL(statx(fd, "", AT_EMPTY_PATH | 0x40000000, STATX_BASIC_STATS, &x));
  CALL(statx(fd, "", AT_EMPTY_PATH | AT_STATX_SYNC_TYPE, STATX_BASIC_STATS, &x));
  CALL(close(fd));
  CALL(fstat(fd, &st));
  EXPECT_EQ(errno, EBADF);
}

PARITY(Stat, UnknownFlagsAndNullPathsOfAnFd) {
  // Each call gets its own open, because after the first such call the file is a kernel file.
  t.file("a", 5000);
  for (const int flags :
       {0x40000000, AT_SYMLINK_FOLLOW, AT_STATX_SYNC_TYPE, AT_STATX_SYNC_TYPE | 0x40000000}) {
    const int fd = CALL(open(t / "a", O_RDONLY));
    struct statx x {};
    CALL(statx(fd, "", AT_EMPTY_PATH | flags, STATX_BASIC_STATS, &x));
    CALL(close(fd));
  }
  const int fd = CALL(open(t / "a", O_RDONLY));
  struct stat st {};
  CALL(fstatat(fd, "", &st, AT_EMPTY_PATH | 0x40000000));
  CALL(close(fd));
  // Since Linux 6.11, a null path also means the fd itself.
  const int other = CALL(open(t / "a", O_RDONLY));
  struct statx x {};
  CALL(syscall(SYS_statx, other, nullptr, AT_EMPTY_PATH, STATX_BASIC_STATS, &x));
  t.line(std::to_string(x.stx_size));
  CALL(close(other));
  const int last = CALL(open(t / "a", O_RDONLY));
  x = {};
  CALL(function<int(int, const char*, int, unsigned, struct statx*)>("statx")(
      last, nullptr, AT_EMPTY_PATH, STATX_SIZE, &x));
  t.line(std::to_string(x.stx_size));
  CALL(close(last));
}

PARITY(Stat, KindsOfFiles) {
  t.file("empty", 0);
  t.file("ro", 10, 0444);
  t.file("none", 10, 0000);
  t.file("suid", 10, 04755);
  t.file("exec", 10, 0755);
  t.dir("d");
  t.link("to_d", "d");
  t.link("to_ro", "ro");
  t.link("dangling", "nowhere");
  t.fifo("p");
  t.sparse("sparse", 1 << 20, 4096);
  for (const char* name : {"empty", "ro", "none", "suid", "exec", "d", "to_d", "to_ro", "dangling",
                           "p", "sparse", "missing"}) {
    t.line(name);
    struct stat st {};
    if (std::string_view(name) != "p") {
      const int fd = CALL(open(t / name, O_RDONLY));
      if (fd >= 0) {
        CALL(fstat(fd, &st));
        t.stat("fstat", st, t / name);
        CALL(close(fd));
      }
    }
    if (CALL(stat(t / name, &st)) == 0) t.stat("stat", st, t / name);
    if (CALL(lstat(t / name, &st)) == 0) t.stat("lstat", st, t / name, false);
    if (CALL(fstatat(AT_FDCWD, t / name, &st, AT_SYMLINK_NOFOLLOW)) == 0)
      t.stat("fstatat", st, t / name, false);
    for (const int mode : {F_OK, R_OK, W_OK, X_OK, R_OK | W_OK | X_OK, 8}) {
      CALL(access(t / name, mode));
      CALL(eaccess(t / name, mode));
      CALL(faccessat(AT_FDCWD, t / name, mode, 0));
      CALL(faccessat(AT_FDCWD, t / name, mode, AT_SYMLINK_NOFOLLOW));
      CALL(faccessat(AT_FDCWD, t / name, mode, AT_EACCESS));
    }
    CALL(faccessat(AT_FDCWD, t / name, R_OK, 0x40000000));
  }
  CALL(access(nullptr, R_OK));
  CALL(access("", R_OK));
}

PARITY(Stat, HardLinksShareTheInode) {
  t.file("a", 10);
  t.hard("b", "a");
  struct stat a {
  }, b{};
  const int fd_a = CALL(open(t / "a", O_RDONLY));
  const int fd_b = CALL(open(t / "b", O_RDONLY));
  CALL(fstat(fd_a, &a));
  CALL(fstat(fd_b, &b));
  t.line(a.st_ino == b.st_ino && a.st_dev == b.st_dev ? "same file" : "other file");
  t.line("links " + std::to_string(b.st_nlink));
  CALL(close(fd_a));
  CALL(close(fd_b));
}

PARITY(Stat, StatxMasksByFd) {
  const char* const path = t.file("a", 5000);
  const int fd = CALL(open(path, O_RDONLY));
  for (const unsigned mask :
       {0U, unsigned{STATX_SIZE}, unsigned{STATX_BASIC_STATS}, unsigned{STATX_BTIME},
        unsigned{STATX_ALL}, unsigned{STATX_MNT_ID}, STATX_ALL | STATX_MNT_ID,
        0x2000U /* DIOALIGN */, 0x4000U /* MNT_ID_UNIQUE */, 0xfffU | 0x2000U,
        0x10000U /* WRITE_ATOMIC */, 0x8000U /* SUBVOL */}) {
    struct statx x {};
    char label[40];
    std::snprintf(label, sizeof label, "mask %x", mask);
    CALL(statx(fd, "", AT_EMPTY_PATH, mask, &x));
    compare_statx(t, label, x, path, 0, mask);
    // Compares again, with a file that is certainly served.
    const int other = CALL(open(path, O_RDONLY));
    struct statx y {};
    CALL(statx(other, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, mask, &y));
    compare_statx(t, label, y, path, 0, mask);
    CALL(close(other));
  }
  CALL(close(fd));
}

PARITY(Stat, StatxMasksByPath) {
  const char* const path = t.file("a", 5000);
  t.link("l", "a");
  CALL(close(CALL(open(path, O_RDONLY))));
  for (const unsigned mask : {0U, unsigned{STATX_SIZE}, unsigned{STATX_BASIC_STATS},
                              unsigned{STATX_ALL}, 0x2000U, 0x3fffU}) {
    for (const int flags :
         {0, AT_SYMLINK_NOFOLLOW, AT_STATX_FORCE_SYNC, AT_STATX_DONT_SYNC, AT_NO_AUTOMOUNT}) {
      struct statx x {};
      CALL(statx(AT_FDCWD, path, flags, mask, &x));
      compare_statx(t, "file", x, path, flags, mask);
      CALL(statx(AT_FDCWD, t / "l", flags, mask, &x));
      compare_statx(t, "link", x, t / "l", flags, mask);
    }
  }
}

PARITY(Stat, OffsetDoesNotMatter) {
  const char* const path = t.file("a", 100);
  const int fd = CALL(open(path, O_RDONLY));
  CALL(lseek(fd, 77, SEEK_SET));
  struct stat st {};
  CALL(fstat(fd, &st));
  t.stat("fstat", st, path);
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(close(fd));
}
