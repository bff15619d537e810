// Locks, and calls on one fd that need the kernel.
#include <dirent.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

PARITY(Lock, Flock) {
  const char* const path = t.file("a");
  const int one = CALL(open(path, O_RDONLY));
  const int two = CALL(open(path, O_RDONLY));
  CALL(flock(one, LOCK_EX | LOCK_NB));
  CALL(flock(two, LOCK_EX | LOCK_NB));
  EXPECT_EQ(errno, EWOULDBLOCK);
  CALL(flock(two, LOCK_SH | LOCK_NB));
  CALL(flock(one, LOCK_SH));
  CALL(flock(two, LOCK_SH | LOCK_NB));
  t.in_child([&] {
    const int mine = CALL(open(path, O_RDONLY));
    CALL(flock(mine, LOCK_EX | LOCK_NB));
    CALL(flock(one, LOCK_UN));
  });
  CALL(close(two));
  t.in_child([&] {
    const int mine = CALL(open(path, O_RDONLY));
    CALL(flock(mine, LOCK_EX | LOCK_NB));
  });
  CALL(flock(one, 99));
  CALL(flock(-1, LOCK_SH));
  char byte;
  CALL(read(one, &byte, 1));
  CALL(close(one));
}

PARITY(Lock, RecordLocks) {
  const char* const path = t.file("a");
  const int reader = CALL(open(path, O_RDONLY));
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_len = 10;
  CALL(fcntl(reader, F_SETLK, &lock));
  t.in_child([&] {
    const int writer = CALL(open(path, O_RDWR));
    struct flock wanted {};
    wanted.l_type = F_WRLCK;
    CALL(fcntl(writer, F_GETLK, &wanted));
    t.line("type " + std::to_string(wanted.l_type) + " start " + std::to_string(wanted.l_start) +
           " len " + std::to_string(wanted.l_len) +
           (wanted.l_pid == getppid() ? " parent" : " other"));
    wanted.l_type = F_WRLCK;
    CALL(fcntl(writer, F_SETLK, &wanted));
  });
  lock.l_type = F_WRLCK;
  CALL(fcntl(reader, F_SETLK, &lock));
  EXPECT_EQ(errno, EBADF);
  lock.l_type = F_RDLCK;
  lock.l_pid = 0;
  CALL(fcntl(reader, F_OFD_SETLK, &lock));
  lock.l_type = F_UNLCK;
  CALL(fcntl(reader, F_SETLK, &lock));
  lock.l_type = 77;
  CALL(fcntl(reader, F_SETLK, &lock));
  CALL(fcntl(reader, F_SETLEASE, F_RDLCK));
  CALL(fcntl(reader, F_SETLEASE, F_UNLCK));
  CALL(close(reader));
}

PARITY(Lock, ADupAsStdinKeepsTheLocks) {
  const char* const path = t.file("a");
  const int fd = CALL(open(path, O_RDONLY));
  struct flock all {};
  all.l_type = F_RDLCK;
  CALL(fcntl(fd, F_SETLK, &all));
  const int in = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  const int copy = CALL(dup(fd));
  t.line("copy " + std::to_string(copy));
  t.in_child([&] {
    const int mine = CALL(open(path, O_RDWR));
    all.l_type = F_WRLCK;
    CALL(fcntl(mine, F_SETLK, &all));
  });
  char byte;
  CALL(read(copy, &byte, 1));
  CALL(read(fd, &byte, 1));
  dup2(in, STDIN_FILENO);
  close(in);
}

PARITY(Lock, Lockf) {
  const char* const path = t.file("a");
  const int reader = CALL(open(path, O_RDONLY));
  CALL(lockf(reader, F_TLOCK, 0));
  EXPECT_EQ(errno, EBADF);
  CALL(lockf(reader, F_TEST, 0));
  CALL(lockf(reader, F_ULOCK, 0));
  CALL(lockf64(reader, 99, 0));
  const int writer = CALL(open(path, O_RDWR));
  CALL(lockf(writer, F_TLOCK, 0));
  CALL(close(reader));
  CALL(close(writer));
}

PARITY(Lock, LocksDoNotHideTheBytes) {
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  char got[10];
  CALL(read(fd, got, 10));
  CALL(flock(fd, LOCK_SH));
  t.expect_kernel(fd);
  CALL(read(fd, got, 10));
  t.bytes("got", got, 10);
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(flock(fd, LOCK_UN));
  CALL(close(fd));
}

PARITY(Lock, LockedFilesKeepOneOffset) {
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  const int before = CALL(dup(fd));
  char got[10];
  const auto offset_of_the_kernel = [&](int number) {
    t.line("kernel " + std::to_string(cube::base::sys::lseek(number, 0, SEEK_CUR)));
  };
  CALL(read(fd, got, 10));
  CALL(flock(fd, LOCK_SH));
  offset_of_the_kernel(fd);
  const int after = CALL(dup(fd));
  CALL(read(before, got, 10));
  t.bytes("got", got, 10);
  offset_of_the_kernel(before);
  CALL(lseek(after, 3, SEEK_CUR));
  offset_of_the_kernel(fd);
  struct iovec part {
    got, 10
  };
  CALL(readv(after, &part, 1));
  t.bytes("got", got, 10);
  offset_of_the_kernel(after);
  CALL(pread(fd, got, 10, 4000));
  offset_of_the_kernel(after);
  t.in_child([&] {
    CALL(read(fd, got, 10));
    t.bytes("got", got, 10);
    CALL(read(before, got, 10));
    t.bytes("got", got, 10);
  });
  CALL(read(after, got, 10));
  t.bytes("got", got, 10);
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(close(fd));
  // The dups hold the lock.
  t.in_child([&] {
    const int mine = CALL(open(t / "a", O_RDONLY));
    CALL(flock(mine, LOCK_EX | LOCK_NB));
  });
  CALL(close(before));
  CALL(close(after));
  t.in_child([&] {
    const int mine = CALL(open(t / "a", O_RDONLY));
    CALL(flock(mine, LOCK_EX | LOCK_NB));
  });
}

PARITY(Lock, LocksOutliveMaterialization) {
  const char* const path = t.file("a", 100);
  for (int which = 0; which < 3; ++which) {
    t.line(std::to_string(which));
    const int fd = CALL(open(path, O_RDONLY));
    const int copy = CALL(dup(fd));
    struct flock lock {};
    lock.l_type = F_RDLCK;
    lock.l_len = 10;
    CALL(which == 1 ? static_cast<int>(syscall(SYS_fcntl, static_cast<long>(fd),
                                               static_cast<long>(F_SETLK), &lock))
                    : fcntl(fd, F_SETLK, &lock));
    if (which == 2)
      CALL(static_cast<int>(syscall(SYS_flock, static_cast<long>(fd), static_cast<long>(LOCK_SH))));
    CALL(fsync(copy));
    t.in_child([&] {
      const int writer = CALL(open(path, O_RDWR));
      struct flock wanted {};
      wanted.l_type = F_WRLCK;
      CALL(fcntl(writer, F_GETLK, &wanted));
      t.line("type " + std::to_string(wanted.l_type) + " len " + std::to_string(wanted.l_len));
      CALL(flock(writer, LOCK_EX | LOCK_NB));
    });
    CALL(close(copy));
    CALL(close(fd));
  }
}

PARITY(Lock, LeavesOtherFilesServedBesideALockedOne) {
  // A locked fd must not be duplicated to make a placeholder.
  const int locked = CALL(open(t.file("a", 100), O_RDONLY));
  CALL(flock(locked, LOCK_SH));
  const int other = CALL(open(t.file("b", 200), O_RDONLY));
  t.expect_served(other);
  const int third = CALL(open(t / "b", O_RDONLY));
  t.expect_served(third);
  CALL(dup2(other, locked));
  t.in_child([&] {
    const int mine = CALL(open(t / "a", O_RDONLY));
    CALL(flock(mine, LOCK_EX | LOCK_NB));
  });
  CALL(lseek(locked, 0, SEEK_END));
  CALL(flock(third, LOCK_SH | LOCK_NB));
  CALL(dup2(third, other));
  CALL(lseek(locked, 0, SEEK_CUR));
  CALL(close(third));
  CALL(close(other));
  CALL(close(locked));
}

PARITY(OneFd, FileSystemQuestions) {
  for (int which = 0; which < 9; ++which) {
    t.line("question " + std::to_string(which));
    const int fd = CALL(open(t.file("f" + std::to_string(which), 5000), O_RDONLY));
    CALL(lseek(fd, 77, SEEK_SET));
    struct statfs fs {};
    struct statfs64 fs64 {};
    struct statvfs vfs {};
    struct statvfs64 vfs64 {};
    switch (which) {
      case 0:
        CALL(fstatfs(fd, &fs));
        t.line(std::to_string(fs.f_type) + " " + std::to_string(fs.f_bsize));
        break;
      case 1:
        CALL(fstatfs64(fd, &fs64));
        t.line(std::to_string(fs64.f_type));
        break;
      case 2:
        CALL(fstatvfs(fd, &vfs));
        t.line(std::to_string(vfs.f_namemax) + " " + std::to_string(vfs.f_fsid));
        break;
      case 3:
        CALL(fstatvfs64(fd, &vfs64));
        t.line(std::to_string(vfs64.f_flag));
        break;
      case 4:
        CALL(fpathconf(fd, _PC_NAME_MAX));
        CALL(fpathconf(fd, _PC_LINK_MAX));
        CALL(fpathconf(fd, 9999));
        break;
      case 5: CALL(fsync(fd)); break;
      case 6: CALL(fdatasync(fd)); break;
      case 7: CALL(sync_file_range(fd, 0, 100, SYNC_FILE_RANGE_WAIT_BEFORE)); break;
      case 8: CALL(getdents64(fd, &fs, sizeof fs)); break;
    }
    CALL(lseek(fd, 0, SEEK_CUR));
    char got[4];
    CALL(read(fd, got, 4));
    t.bytes("got", got, 4);
    CALL(close(fd));
  }
}

PARITY(OneFd, ExtendedAttributes) {
  const char* const path = t.file("a");
  CALL(setxattr(path, "user.color", "blue", 4, 0));
  char value[20] = {}, list[100] = {};
  int fd = CALL(open(path, O_RDONLY));
  CALL(fgetxattr(fd, "user.color", value, sizeof value));
  t.line(value);
  CALL(close(fd));
  fd = CALL(open(path, O_RDONLY));
  CALL(flistxattr(fd, list, sizeof list));
  t.line(list);
  CALL(close(fd));
  fd = CALL(open(path, O_RDONLY));
  CALL(fgetxattr(fd, "user.none", value, sizeof value));
  EXPECT_EQ(errno, ENODATA);
  CALL(fsetxattr(fd, "user.more", "x", 1, 0));
  CALL(fremovexattr(fd, "user.color"));
  CALL(fgetxattr(fd, "user.color", value, sizeof value));
  CALL(close(fd));
  CALL(fgetxattr(fd, "user.color", value, sizeof value));
}

PARITY(OneFd, MetadataThroughTheFd) {
  const char* const path = t.file("a");
  const int fd = CALL(open(path, O_RDONLY));
  const timespec times[2] = {{1, 2}, {3, 4}};
  struct stat st {};
  CALL(fchmod(fd, 0600));
  CALL(fchown(fd, 1, 1));
  CALL(futimens(fd, times));
  CALL(fstat(fd, &st));
  t.stat("fstat", st, path);
  CALL(fchmod(fd, 0644));
  CALL(fstat(fd, &st));
  t.stat("fstat", st, path);
  CALL(utimensat(fd, nullptr, times, 0));
  CALL(fchownat(fd, "", 2, 2, AT_EMPTY_PATH));
  CALL(linkat(fd, "", AT_FDCWD, t / "linked", AT_EMPTY_PATH));
  CALL(access(t / "linked", F_OK));
  CALL(close(fd));
}
