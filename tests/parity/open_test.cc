// open and related calls: the flags with which a file is served, the errors, and names that are not
// plain files.
#include <climits>

#include "tests/support/parity_case.h"

using cube::parity::function;

namespace {
// An invalid pointer and a null pointer.
const char* const k_wild = reinterpret_cast<const char*>(0xdead000000000000ULL);
}  // namespace

PARITY(Open, ServesAFileOpenedForReading) {
  const int fd = CALL(open(t.file("a"), O_RDONLY));
  t.expect_served(fd);
  EXPECT_GE(fd, 0);
  CALL(close(fd));
  CALL(close(fd));
}

PARITY(Open, EverySymbolGivesTheSame) {
  const char* const path = t.file("a");
  using Open = int(const char*, int, ...);
  using OpenAt = int(int, const char*, int, ...);
  using Open2 = int(const char*, int);
  using OpenAt2 = int(int, const char*, int);
  const auto look = [&](const char* name, int fd) {
    t.note(name, fd);
    t.expect_served(fd);
    char byte[4] = {};
    CALL(read(fd, byte, 4));
    t.bytes(name, byte, 4);
    CALL(close(fd));
  };
  for (const char* name : {"open", "open64", "__open", "__open64"}) {
    errno = cube::parity::k_errno_kept;
    look(name, function<Open>(name)(path, O_RDONLY));
  }
  for (const char* name : {"openat", "openat64"}) {
    errno = cube::parity::k_errno_kept;
    look(name, function<OpenAt>(name)(AT_FDCWD, path, O_RDONLY));
  }
  for (const char* name : {"__open_2", "__open64_2"}) {
    errno = cube::parity::k_errno_kept;
    look(name, function<Open2>(name)(path, O_RDONLY));
  }
  for (const char* name : {"__openat_2", "__openat64_2"}) {
    errno = cube::parity::k_errno_kept;
    look(name, function<OpenAt2>(name)(AT_FDCWD, path, O_RDONLY));
  }
}

PARITY(Open, NamesThatAreNotThereAreRefused) {
  t.file("a");
  t.dir("d");
  CALL(open(t / "none", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  CALL(open(t / "none", O_RDONLY));
  CALL(open(t / "d/none", O_RDONLY));
  CALL(open(t / "none/a", O_RDONLY));
  CALL(open(t / "a/b", O_RDONLY));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(open(t / "a/", O_RDONLY));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(open(t / "a/.", O_RDONLY));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(open(t / "a/..", O_RDONLY));
  CALL(open(t / "a//", O_RDONLY));
  CALL(open("", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  CALL(openat(AT_FDCWD, "", O_RDONLY));
}

PARITY(Open, PointersThatCannotBeAreRefused) {
  t.file("a");
  CALL(open(nullptr, O_RDONLY));
  EXPECT_EQ(errno, EFAULT);
  CALL(open(k_wild, O_RDONLY));
  EXPECT_EQ(errno, EFAULT);
  CALL(open64(nullptr, O_RDONLY));
  CALL(openat(AT_FDCWD, nullptr, O_RDONLY));
  CALL(openat(AT_FDCWD, k_wild, O_RDONLY));
  CALL(open(reinterpret_cast<const char*>(16), O_RDONLY));
}

PARITY(Open, OverlongNamesAndPathsAreRefused) {
  t.file("a");
  CALL(open(t / std::string(255, 'n'), O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  CALL(open(t / std::string(256, 'n'), O_RDONLY));
  EXPECT_EQ(errno, ENAMETOOLONG);
  std::string longest = t.root();
  while (longest.size() < PATH_MAX + 100) longest += "/.";
  for (const int n : {PATH_MAX - 3, PATH_MAX - 2, PATH_MAX - 1, PATH_MAX, PATH_MAX + 1}) {
    std::string path = longest.substr(0, n - 2) + "/a";
    if (path[n - 3] == '/') path[n - 3] = '.';
    t.line("length " + std::to_string(n));
    const int fd = CALL(open(path.c_str(), O_RDONLY));
    if (fd >= 0) CALL(close(fd));
  }
}

PARITY(Open, PathOfTheGreatestLengthIsRead) {
  std::string name = "d";
  while (t.root().size() + name.size() < PATH_MAX - 300) {
    t.dir(name);
    name += "/" + std::string(200, 'x');
  }
  t.dir(name);
  const std::size_t room = PATH_MAX - 1 - t.root().size() - name.size() - 2;
  t.file(name + "/" + std::string(room, 'y'), 50);
  const int fd = CALL(open(t / (name + "/" + std::string(room, 'y')), O_RDONLY));
  char got[64] = {};
  CALL(read(fd, got, sizeof got));
  t.bytes("got", got, 50);
  CALL(close(fd));
  CALL(open(t / (name + "/" + std::string(room + 1, 'y')), O_RDONLY));
}

PARITY(Open, NamesOfOddBytesAreRead) {
  for (const char* name : {"line\nbreak", "\xff\xfe not utf-8", "sp ace", "tab\t", "...", "..a",
                           "a..", ".hidden", "back\\slash", "\"quoted\"", "%p", "~", "-"}) {
    const int fd = CALL(open(t.file(name, 20), O_RDONLY));
    t.expect_served(fd);
    char got[20] = {};
    CALL(read(fd, got, sizeof got));
    t.bytes("got", got, sizeof got);
    CALL(close(fd));
  }
}

PARITY(Open, DirectoriesAndTheirFlags) {
  t.dir("d");
  t.file("d/f");
  const int dir = CALL(open(t / "d", O_RDONLY));
  char byte = 0;
  CALL(read(dir, &byte, 1));
  EXPECT_EQ(errno, EISDIR);
  CALL(close(dir));
  CALL(close(CALL(open(t / "d", O_RDONLY | O_DIRECTORY))));
  CALL(close(CALL(open(t / "d/", O_RDONLY))));
  CALL(open(t / "d/f", O_RDONLY | O_DIRECTORY));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(open(t / "d", O_WRONLY));
  EXPECT_EQ(errno, EISDIR);
  CALL(open(t / "d", O_RDWR));
  CALL(open(t / "d", O_RDONLY | O_CREAT, 0644));
  CALL(open(t / "d/f", O_RDONLY | O_CREAT | O_EXCL, 0644));
  EXPECT_EQ(errno, EEXIST);
}

PARITY(Open, LinksAreFollowedUnlessTheFlagsForbidIt) {
  t.file("a");
  t.link("to_a", "a");
  t.link("to_to_a", "to_a");
  t.link("absolute", t / "a");
  t.link("dangling", "none");
  t.link("self", "self");
  t.dir("d");
  t.link("to_d", "d");
  t.file("d/f");
  for (const char* name : {"to_a", "to_to_a", "absolute", "to_d/f"}) {
    t.warm(t / name);
    const int fd = CALL(open(t / name, O_RDONLY));
    t.expect_served(fd);
    CALL(close(fd));
  }
  CALL(open(t / "dangling", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  CALL(open(t / "self", O_RDONLY));
  EXPECT_EQ(errno, ELOOP);
  CALL(open(t / "to_a", O_RDONLY | O_NOFOLLOW));
  EXPECT_EQ(errno, ELOOP);
  CALL(open(t / "to_a", O_RDONLY | O_NOFOLLOW));
  CALL(open(t / "absolute", O_RDONLY | O_NOFOLLOW));
  CALL(close(CALL(open(t / "a", O_RDONLY | O_NOFOLLOW))));
  CALL(close(CALL(open(t / "to_d/f", O_RDONLY | O_NOFOLLOW))));
  CALL(open(t / "to_a/", O_RDONLY));
  CALL(open(t / "to_d", O_RDONLY | O_NOFOLLOW));
  CALL(open(t / "to_d", O_RDONLY | O_NOFOLLOW | O_DIRECTORY));
}

PARITY(Open, FlagsThatTheKernelMustSee) {
  const char* const path = t.file("a", 8192);
  const auto look = [&](int fd) {
    if (fd < 0) return;
    char byte[2] = {};
    CALL(read(fd, byte, 2));
    CALL(fcntl(fd, F_GETFL) & ~O_LARGEFILE);
    CALL(close(fd));
  };
  look(CALL(open(path, O_RDONLY | O_PATH)));
  look(CALL(open(path, O_RDONLY | O_NOATIME)));
  look(CALL(open(path, O_RDONLY | O_ASYNC)));
  look(CALL(open(path, O_RDONLY | O_NONBLOCK)));
  look(CALL(open(path, O_RDONLY | O_SYNC)));
  look(CALL(open(path, O_RDONLY | O_DSYNC)));
  look(CALL(open(path, O_RDONLY | O_APPEND)));
  look(CALL(open(path, O_RDONLY | O_NOCTTY)));
  look(CALL(open(path, O_RDONLY | O_LARGEFILE)));
  look(CALL(open(path, O_RDONLY | O_CLOEXEC)));
  look(CALL(open(path, O_ACCMODE)));
  look(CALL(open(path, O_RDONLY | 0x40000000)));
  look(CALL(open(path, O_RDONLY | O_TMPFILE)));
  look(CALL(open(t.root().c_str(), O_RDWR | O_TMPFILE, 0600)));
}

PARITY(Open, SpecialFilesAreLeftToTheKernel) {
  t.fifo("p");
  const int reader = CALL(open(t / "p", O_RDONLY | O_NONBLOCK));
  const int writer = CALL(open(t / "p", O_WRONLY | O_NONBLOCK));
  CALL(write(writer, "hello", 5));
  char got[8] = {};
  CALL(read(reader, got, 8));
  t.bytes("got", got, 5);
  CALL(lseek(reader, 0, SEEK_CUR));
  EXPECT_EQ(errno, ESPIPE);
  CALL(close(writer));
  CALL(close(reader));
  CALL(open(t / "p", O_WRONLY | O_NONBLOCK));
  EXPECT_EQ(errno, ENXIO);
}

PARITY(Open, SizesAroundTheLimits) {
  for (const std::size_t size :
       {0UL, 1UL, 63UL, 64UL, 4095UL, 4096UL, 4097UL, 32767UL, 32768UL, 65536UL, (1UL << 20) + 1,
        cube::parity::k_max_file, cube::parity::k_max_file + 1}) {
    const std::string name = "s" + std::to_string(size);
    const int fd = CALL(open(t.file(name, size), O_RDONLY));
    if (size <= cube::parity::k_max_file) {
      t.expect_served(fd);
    } else {
      t.expect_kernel(fd);
    }
    std::string got(size + 10, 'x');
    CALL(read(fd, got.data(), got.size()));
    EXPECT_EQ(got.substr(0, size), cube::parity::content_of(name, size));
    t.bytes(name.c_str(), got.data(), got.size());
    CALL(read(fd, got.data(), got.size()));
    CALL(close(fd));
  }
}

PARITY(Open, CreatAndTruncateAreSeen) {
  using Creat = int(const char*, mode_t);
  for (const char* name : {"creat", "creat64"}) {
    const char* const path = t.file(name, 500);
    errno = cube::parity::k_errno_kept;
    const int fd = t.note(name, function<Creat>(name)(path, 0600));
    CALL(write(fd, "new", 3));
    CALL(close(fd));
    const int again = CALL(open(path, O_RDONLY));
    char got[600] = {};
    CALL(read(again, got, sizeof got));
    t.bytes("got", got, 3);
    CALL(close(again));
  }
}

PARITY(Open, OldReaderSeesATruncateByOpen) {
  const char* const path = t.file("a", 500);
  const int reader = CALL(open(path, O_RDONLY));
  char got[600] = {};
  CALL(read(reader, got, 10));
  CALL(close(CALL(open(path, O_WRONLY | O_TRUNC))));
  CALL(read(reader, got, sizeof got));
  CALL(lseek(reader, 0, SEEK_END));
  CALL(close(reader));
  const int reader2 = CALL(open(path, O_RDONLY));
  CALL(read(reader2, got, sizeof got));
  CALL(close(reader2));
}

PARITY(Open, ReadOnlyWithTruncateEmptiesTheFile) {
  const char* const path = t.file("a", 500);
  CALL(close(CALL(open(path, O_RDONLY))));
  CALL(close(CALL(open(path, O_RDONLY | O_TRUNC))));
  char got[10] = {};
  const int fd = CALL(open(path, O_RDONLY));
  CALL(read(fd, got, sizeof got));
  CALL(close(fd));
}

PARITY(Open, NumberedDescriptorLimitMatchesTheKernel) {
  t.file("a");
  CALL(openat(-1, "a", O_RDONLY));
  EXPECT_EQ(errno, EBADF);
  CALL(openat(12345, "a", O_RDONLY));
  CALL(openat(0, t / "a", O_RDONLY | O_DIRECTORY));
  const int fd = CALL(openat(-1, t / "a", O_RDONLY));
  t.expect_served(fd);
  CALL(openat(fd, "a", O_RDONLY));
  EXPECT_EQ(errno, ENOTDIR);
  CALL(close(fd));
}
