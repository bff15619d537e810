// Names of fds (/proc/self/fd, /dev/fd, realpath), and streams over directories.
#include <dirent.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include <algorithm>

#include "tests/support/parity_case.h"

using cube::parity::function;

namespace {

std::string of_fd(const char* format, int fd) {
  char text[100];
  std::snprintf(text, sizeof text, format, fd);
  return text;
}

}  // namespace

PARITY(Name, ReadlinkOfAnFd) {
  char got[4096];
  for (const char* format : {"/proc/self/fd/%d", "/proc/thread-self/fd/%d", "/dev/fd/%d"}) {
    const int fd = CALL(open(t.file(std::string("f") + format[1] + format[6]), O_RDONLY));
    const ssize_t n = readlink(of_fd(format, fd).c_str(), got, sizeof got - 1);
    ASSERT_GT(n, 0);
    got[n] = 0;
    t.path(format, got);
    CALL(close(fd));
    CALL(readlink(of_fd(format, fd).c_str(), got, sizeof got - 1));
    EXPECT_EQ(errno, ENOENT);
  }
  const int fd = CALL(open(t.file("chk"), O_RDONLY));
  ssize_t n = function<ssize_t(const char*, char*, size_t, size_t)>("__readlink_chk")(
      of_fd("/proc/self/fd/%d", fd).c_str(), got, 4000, 4096);
  got[n > 0 ? n : 0] = 0;
  t.path("__readlink_chk", got);
  n = readlinkat(AT_FDCWD, of_fd("/proc/self/fd/%d", fd).c_str(), got, 4000);
  got[n > 0 ? n : 0] = 0;
  t.path("readlinkat", got);
  CALL(readlinkat(fd, "", got, 4000));
  CALL(readlink(t / "chk", got, 100));
  EXPECT_EQ(errno, EINVAL);
  const int other = CALL(open(t / "chk", O_RDONLY));
  const int proc = CALL(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
  n = readlinkat(proc, std::to_string(other).c_str(), got, 4000);
  got[n > 0 ? n : 0] = 0;
  t.path("relative to /proc/self/fd", got);
}

PARITY(Name, RealpathInItsForms) {
  t.file("a");
  t.link("l", "a");
  const int fd = CALL(open(t / "a", O_RDONLY));
  char got[4096] = {};
  t.path("realpath", realpath(t / "l", got));
  char* made = realpath(of_fd("/proc/self/fd/%d", fd).c_str(), nullptr);
  t.path("realpath of the fd", made);
  free(made);
  made = canonicalize_file_name(of_fd("/dev/fd/%d", CALL(open(t / "a", O_RDONLY))).c_str());
  t.path("canonicalize_file_name", made);
  free(made);
  t.path("__realpath_chk",
         function<char*(const char*, char*, size_t)>("__realpath_chk")(
             of_fd("/proc/self/fd/%d", CALL(open(t / "a", O_RDONLY))).c_str(), got, sizeof got));
  CALL(realpath(t / "none", nullptr));
  CALL(realpath(nullptr, nullptr));
  CALL(realpath("", nullptr));
}

PARITY(Name, OpenThroughAnFdsName) {
  for (const char* format :
       {"/proc/self/fd/%d", "/dev/fd/%d", "/proc/self/task/../fd/%d", "/proc/self//fd/%d",
        "//proc/self//fd/%d", "/proc/./self/fd//%d", "/dev//fd/./%d", "/proc/self/fd/../fd/%d"}) {
    t.line(format);
    const std::string name = "f" + std::to_string(std::strlen(format));
    const int fd = CALL(open(t.file(name, 300), O_RDONLY));
    CALL(lseek(fd, 50, SEEK_SET));
    const int again = CALL(open(of_fd(format, fd).c_str(), O_RDONLY));
    char got[10];
    CALL(read(again, got, 10));
    t.bytes("a description of its own", got, 10);
    CALL(lseek(fd, 0, SEEK_CUR));
    struct stat st {};
    CALL(stat(of_fd(format, fd).c_str(), &st));
    t.stat("stat", st, t / name);
    FILE* const stream = STDIO(nullptr, fopen(of_fd(format, fd).c_str(), "r"));
    CALL(fgetc(stream));
    CALL(fclose(stream));
    const int writer = CALL(open(of_fd(format, fd).c_str(), O_WRONLY));
    CALL(write(writer, "W", 1));
    CALL(close(writer));
    CALL(pread(fd, got, 10, 0));
    t.bytes("written", got, 10);
    CALL(close(again));
    CALL(close(fd));
    CALL(open(of_fd(format, fd).c_str(), O_RDONLY));
  }
}

PARITY(Name, StatOfAnFdsNameFirst) {
  // Each of these calls is the first one on a served fd.
  struct stat st {};
  int fd = CALL(open(t.file("a", 300), O_RDONLY));
  CALL(stat(of_fd("/proc/self/fd/%d", fd).c_str(), &st));
  t.stat("stat", st, t / "a");
  fd = CALL(open(t.file("b", 300), O_RDONLY));
  CALL(access(of_fd("/proc/self/fd/%d", fd).c_str(), R_OK));
  fd = CALL(open(t.file("c", 300), O_RDONLY));
  CALL(lstat(of_fd("/proc/self/fd/%d", fd).c_str(), &st));
  t.line(std::to_string(st.st_mode));
  fd = CALL(open(t.file("d", 300), O_RDONLY));
  struct statx x {};
  CALL(statx(AT_FDCWD, of_fd("/dev/fd/%d", fd).c_str(), 0, STATX_SIZE, &x));
  t.line(std::to_string(x.stx_size));
  fd = CALL(open(t.file("e", 300), O_RDONLY));
  CALL(truncate(of_fd("/proc/self/fd/%d", fd).c_str(), 100));
  CALL(lseek(fd, 0, SEEK_END));
}

PARITY(Name, RightsAndStatsOfAnFdsNameByCallNumber) {
  const auto fresh = [&](const char* name) {
    return of_fd("/proc/self/fd/%d", CALL(open(t.file(name, 300), O_RDONLY)));
  };
  // A placeholder is a symbolic link, which has other rights.
  CALL(access(fresh("a").c_str(), X_OK));
  CALL(faccessat(AT_FDCWD, fresh("b").c_str(), X_OK, 0));
  CALL(syscall(SYS_faccessat, AT_FDCWD, fresh("c").c_str(), X_OK));
  struct stat st {};
  CALL(syscall(SYS_newfstatat, AT_FDCWD, fresh("d").c_str(), &st, 0L));
  t.stat("newfstatat", st, t / "d");
  struct statx x {};
  CALL(syscall(SYS_statx, AT_FDCWD, fresh("e").c_str(), 0L, static_cast<long>(STATX_SIZE), &x));
  t.line(std::to_string(x.stx_size));
#if defined(SYS_stat)
  CALL(syscall(SYS_stat, fresh("f").c_str(), &st));
  t.stat("stat", st, t / "f");
  CALL(syscall(SYS_access, fresh("g").c_str(), static_cast<long>(X_OK)));
#endif
  struct statfs fs {};
  CALL(syscall(SYS_statfs, fresh("h").c_str(), &fs));
}

PARITY(Name, StandardInputByName) {
  t.in_child([&] {
    const int fd = CALL(open(t.file("a", 300), O_RDONLY));
    CALL(dup2(fd, 0));
    const int again = CALL(open("/dev/stdin", O_RDONLY));
    char got[10];
    CALL(read(again, got, 10));
    t.bytes("got", got, 10);
    CALL(read(0, got, 10));
    t.bytes("got", got, 10);
  });
}

PARITY(Name, ListOfOpenFds) {
  CALL(close(CALL(open(t.file("a"), O_RDONLY))));
  const int fd = CALL(open(t / "a", O_RDONLY));
  CALL(close(CALL(open(t / "a", O_RDONLY))));
  for (const char* name : {"/proc/self/fd", "/dev/fd", "/proc/self/fdinfo"}) {
    DIR* const list = opendir(name);
    std::vector<int> numbers;
    while (const dirent* entry = readdir(list)) {
      if (entry->d_name[0] != '.') numbers.push_back(atoi(entry->d_name));
    }
    std::string text;
    for (const int n : numbers) text += " " + std::to_string(n);
    t.line(name + text);
    closedir(list);
  }
  CALL(close(fd));
}

PARITY(Directory, StreamsAndLists) {
  t.dir("d");
  for (const char* name : {"x", "y", "z"}) t.file(std::string("d/") + name);
  t.dir("d/sub");
  DIR* const stream = STDIO(nullptr, opendir(t / "d"));
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream))
    names.push_back(std::string(entry->d_name) + std::to_string(entry->d_type));
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) t.line(name);
  const int fd = CALL(openat(dirfd(stream), "x", O_RDONLY));
  t.expect_served(fd);
  CALL(close(fd));
  CALL(closedir(stream));
  dirent** list = nullptr;
  const int n = CALL(scandir(t / "d", &list, nullptr, alphasort));
  for (int i = 0; i < n; ++i) {
    t.line(list[i]->d_name);
    free(list[i]);
  }
  free(list);
  CALL(opendir(t / "none"));
  CALL(opendir(t / "d/x"));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(scandir(t / "d/x", &list, nullptr, nullptr));
}

PARITY(Directory, FdsOfFilesAreRefused) {
  const int fd = CALL(open(t.file("a"), O_RDONLY));
  CALL(fdopendir(fd));
  EXPECT_EQ(errno, ENOTDIR);
  char got[10];
  CALL(read(fd, got, 10));
  CALL(close(fd));
  const int second = CALL(open(t / "a", O_RDONLY));
  char entries[512];
  CALL(getdents64(second, entries, sizeof entries));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(close(second));
  CALL(fdopendir(second));
  EXPECT_EQ(errno, EBADF);
}
