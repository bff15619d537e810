// read and related calls on a served file: counts, offsets, vectors, and errors that occur before
// any byte is read.
#include <sys/uio.h>

#include <climits>

#include "tests/support/parity_case.h"

using cube::parity::function;

namespace {
char* const k_wild = reinterpret_cast<char*>(0xdead000000000000ULL);
}  // namespace

PARITY(Read, MovesTheOffsetToTheEnd) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  char got[200] = {};
  CALL(read(fd, got, 30));
  t.bytes("first", got, 30);
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(read(fd, got, 0));
  CALL(read(fd, got, 200));
  t.bytes("rest", got, 70);
  CALL(read(fd, got, 200));
  CALL(read(fd, got, 200));
  CALL(lseek(fd, 0, SEEK_CUR));
  t.expect_served(fd);
  CALL(close(fd));
  CALL(read(fd, got, 1));
  EXPECT_EQ(errno, EBADF);
  CALL(read(-1, got, 1));
}

// If the file is large, only the second round finds the bytes in memory.
PARITY(Read, WithODirectGivesTheSameBytesAndErrors) {
  constexpr std::size_t k_size = 10'000;
  const int fd = CALL(open(t.file("a", k_size), O_RDONLY | O_DIRECT));
  alignas(4096) char got[5 * 4096];
  const auto look = [&](const char* name, ssize_t n, const char* from) {
    t.note(name, n);
    t.bytes(name, from, n > 0 ? static_cast<std::size_t>(n) : 0);
    t.note("offset", lseek(fd, 0, SEEK_CUR));
    errno = cube::parity::k_errno_kept;
  };
  errno = cube::parity::k_errno_kept;
  for (int round = 0; round < 2; ++round) {
    for (const off_t at : {0, 4096, 512, 100, 8192, 12'288}) {
      for (const std::size_t n : {4096, 16'384, 512, 100, 10'000})
        look("pread", pread(fd, got, n, at), got);
    }
    for (const std::size_t beside : {1, 2, 4, 16, 256, 512})
      look("pread beside a page", pread(fd, got + beside, 4096, 0), got + beside);
    CALL(lseek(fd, 0, SEEK_SET));
    for (const std::size_t n : {4096, 10, 8192, 4096, 4096}) look("read", read(fd, got, n), got);
    iovec parts[2] = {{got, 4096}, {got + 4096, 8192}};
    look("preadv", preadv(fd, parts, 2, 0), got);
    parts[0].iov_len = 50;
    look("preadv with an odd part", preadv(fd, parts, 2, 0), got);
    CALL(lseek(fd, 100, SEEK_SET));
    look("readv from an odd place", readv(fd, parts + 1, 1), got);
  }
  CALL(close(fd));
}

PARITY(Read, EverySymbolGivesTheSame) {
  const std::string content = cube::parity::content_of("a", 5000);
  const int fd = CALL(open(t.file("a", 5000), O_RDONLY));
  char got[6000];
  const auto look = [&](const char* name, ssize_t n) {
    t.note(name, n);
    t.bytes(name, got, n > 0 ? n : 0);
    CALL(lseek(fd, 0, SEEK_CUR));
    errno = cube::parity::k_errno_kept;
  };
  errno = cube::parity::k_errno_kept;
  look("read", function<ssize_t(int, void*, size_t)>("read")(fd, got, 7));
  look("__read", function<ssize_t(int, void*, size_t)>("__read")(fd, got, 7));
  look("__read_chk",
       function<ssize_t(int, void*, size_t, size_t)>("__read_chk")(fd, got, 7, sizeof got));
  for (const char* name : {"pread", "pread64", "__pread64"}) {
    look(name, function<ssize_t(int, void*, size_t, off_t)>(name)(fd, got, 11, 4991));
  }
  for (const char* name : {"__pread_chk", "__pread64_chk"}) {
    look(name,
         function<ssize_t(int, void*, size_t, off_t, size_t)>(name)(fd, got, 11, 4990, sizeof got));
  }
  iovec parts[3] = {{got, 3}, {got + 3, 0}, {got + 3, 20}};
  look("readv", function<ssize_t(int, const iovec*, int)>("readv")(fd, parts, 3));
  for (const char* name : {"preadv", "preadv64"}) {
    look(name, function<ssize_t(int, const iovec*, int, off_t)>(name)(fd, parts, 3, 100));
  }
  for (const char* name : {"preadv2", "preadv64v2"}) {
    look(name, function<ssize_t(int, const iovec*, int, off_t, int)>(name)(fd, parts, 3, 100, 0));
    look(name, function<ssize_t(int, const iovec*, int, off_t, int)>(name)(fd, parts, 3, -1, 0));
  }
  t.expect_served(fd);
  CALL(close(fd));
}

PARITY(Read, PositionalReadsLeaveTheOffset) {
  const int fd = CALL(open(t.file("a", 4097), O_RDONLY));
  char got[64] = {};
  CALL(lseek(fd, 5, SEEK_SET));
  CALL(pread(fd, got, 10, 0));
  t.bytes("got", got, 10);
  CALL(pread(fd, got, 10, 4090));
  t.bytes("got", got, 7);
  CALL(pread(fd, got, 10, 4097));
  CALL(pread(fd, got, 10, 1L << 40));
  CALL(pread(fd, got, 10, LONG_MAX));
  CALL(pread(fd, got, 0, LONG_MAX));
  CALL(pread(fd, got, 10, -1));
  EXPECT_EQ(errno, EINVAL);
  CALL(pread(fd, got, 0, -1));
  CALL(pread(fd, got, 10, LONG_MIN));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(close(fd));
  CALL(pread(fd, got, 10, 0));
  CALL(pread(fd, got, 10, -1));
}

PARITY(Read, PointersThatCannotBeAreRefused) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  CALL(read(fd, nullptr, 10));
  EXPECT_EQ(errno, EFAULT);
  CALL(read(fd, k_wild, 10));
  CALL(read(fd, k_wild, 0));
  CALL(read(fd, nullptr, 0));
  CALL(pread(fd, nullptr, 10, 0));
  CALL(pread(fd, k_wild, 10, 0));
  CALL(pread(fd, nullptr, 10, 100));
  CALL(pread(fd, k_wild, 10, 100));
  CALL(pread(fd, nullptr, 0, 0));
  CALL(lseek(fd, 0, SEEK_CUR));
  char got[8];
  CALL(lseek(fd, 100, SEEK_SET));
  CALL(read(fd, nullptr, 10));
  CALL(read(fd, k_wild, 10));
  CALL(lseek(fd, 96, SEEK_SET));
  CALL(read(fd, got, 8));
  t.bytes("got", got, 4);
  CALL(close(fd));
}

PARITY(Read, HugeCountsAreCutToTheFile) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  static char got[200];
  CALL(read(fd, got, 0x7ffff000));
  CALL(read(fd, got, SSIZE_MAX));
  CALL(lseek(fd, 0, SEEK_SET));
  CALL(read(fd, got, SIZE_MAX));
  CALL(lseek(fd, 0, SEEK_SET));
  CALL(read(fd, got, static_cast<size_t>(SSIZE_MAX) + 1));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(pread(fd, got, SIZE_MAX, 0));
  CALL(pread(fd, got, 0x80000000UL, 50));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(close(fd));
}

PARITY(Read, VectorsFillPartByPart) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  char got[300] = {};
  iovec parts[4] = {{got, 10}, {got + 10, 0}, {nullptr, 0}, {got + 10, 30}};
  CALL(readv(fd, parts, 4));
  t.bytes("got", got, 40);
  CALL(readv(fd, parts, 0));
  CALL(readv(fd, nullptr, 0));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(preadv(fd, parts, 4, 80));
  t.bytes("got", got, 40);
  CALL(preadv(fd, parts, 4, 100));
  CALL(preadv(fd, parts, 4, 1000));
  CALL(preadv(fd, parts, 0, 0));
  CALL(readv(fd, parts, 4));
  CALL(readv(fd, parts, 4));
  CALL(lseek(fd, 0, SEEK_CUR));
  t.expect_served(fd);
  CALL(close(fd));
}

PARITY(Read, VectorErrors) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  static iovec many[IOV_MAX + 1];
  static char byte[IOV_MAX + 1];
  for (int i = 0; i <= IOV_MAX; ++i) many[i] = {byte + i, 1};
  CALL(readv(fd, many, -1));
  EXPECT_EQ(errno, EINVAL);
  // Old glibcs split it (SEMANTICS, Limits).
  if (cube::parity::is_libc_from("2.28")) {
    CALL(readv(fd, many, IOV_MAX + 1));
    EXPECT_EQ(errno, EINVAL);
  }
  CALL(readv(fd, many, IOV_MAX));
  t.bytes("got", byte, 100);
  CALL(lseek(fd, 0, SEEK_SET));
  CALL(readv(fd, nullptr, 1));
  EXPECT_EQ(errno, EFAULT);
  CALL(readv(fd, reinterpret_cast<iovec*>(k_wild), 1));
  iovec huge[2] = {{byte, SSIZE_MAX}, {byte, SSIZE_MAX}};
  CALL(readv(fd, huge, 2));
  CALL(lseek(fd, 0, SEEK_SET));
  iovec negative[2] = {{byte, 1}, {byte, SIZE_MAX}};
  CALL(readv(fd, negative, 2));
  CALL(lseek(fd, 0, SEEK_SET));
  iovec wild[2] = {{byte, 10}, {k_wild, 10}};
  CALL(readv(fd, wild, 2));
  CALL(lseek(fd, 0, SEEK_SET));
  iovec null_part[2] = {{byte, 10}, {nullptr, 10}};
  CALL(readv(fd, null_part, 2));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(lseek(fd, 0, SEEK_SET));
  iovec null_first[2] = {{nullptr, 10}, {byte, 10}};
  CALL(readv(fd, null_first, 2));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(preadv(fd, null_first, 2, 0));
  CALL(preadv(fd, null_first, 2, 100));
  CALL(preadv(fd, null_part, 2, 0));
  CALL(preadv(fd, many, 1, -1));
  CALL(preadv(fd, many, 1, LONG_MIN));
  CALL(preadv(fd, nullptr, 1, 0));
  CALL(preadv(fd, many, -1, 0));
  CALL(preadv(fd, many, IOV_MAX + 1, 0));
  CALL(preadv2(fd, many, 1, -2, 0));
  CALL(preadv2(fd, many, 1, 0, 0x4000));
  CALL(close(fd));
  CALL(readv(fd, many, 1));
}

PARITY(Read, SecondVersionOfVectorsHonorsFlags) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  char got[50];
  iovec part{got, 50};
  CALL(preadv2(fd, &part, 1, 10, RWF_HIPRI));
  CALL(preadv2(fd, &part, 1, -1, 0));
  CALL(preadv2(fd, &part, 1, -1, 0));
  CALL(preadv2(fd, &part, 1, -1, 0));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(close(fd));
}

PARITY(Read, WritesToAReadOnlyFdAreRefused) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  iovec part{const_cast<char*>("x"), 1};
  CALL(write(fd, "x", 1));
  EXPECT_EQ(errno, EBADF);
  CALL(write(fd, "x", 0));
  CALL(write(fd, nullptr, 1));
  CALL(pwrite(fd, "x", 1, 0));
  CALL(pwrite(fd, "x", 1, -1));
  CALL(writev(fd, &part, 1));
  CALL(pwritev(fd, &part, 1, 0));
  CALL(ftruncate(fd, 0));
  EXPECT_EQ(errno, EINVAL);
  CALL(ftruncate(fd, -1));
  CALL(fallocate(fd, 0, 0, 10));
  CALL(posix_fallocate(fd, 0, 10));
  char got[10];
  CALL(read(fd, got, 10));
  CALL(close(fd));
}

PARITY(Read, WriteOnlyFdsCannotBeRead) {
  const int fd = CALL(open(t.file("a", 100), O_WRONLY));
  char got[10];
  CALL(read(fd, got, 10));
  EXPECT_EQ(errno, EBADF);
  CALL(pread(fd, got, 10, 0));
  CALL(close(fd));
  const int path_only = CALL(open(t / "a", O_PATH));
  CALL(read(path_only, got, 10));
  CALL(lseek(path_only, 0, SEEK_SET));
  CALL(close(path_only));
}

PARITY(Read, ReaderAheadAndAdvice) {
  const int fd = CALL(open(t.file("a", 10000), O_RDONLY));
  for (int advice = 0; advice <= 5; ++advice) CALL(posix_fadvise(fd, 0, 0, advice));
  CALL(posix_fadvise(fd, 100, 1L << 40, POSIX_FADV_WILLNEED));
  CALL(posix_fadvise64(fd, 0, 4096, POSIX_FADV_SEQUENTIAL));
  t.expect_served(fd);
  CALL(posix_fadvise(fd, -1, 10, POSIX_FADV_NORMAL));
  CALL(posix_fadvise(fd, 0, 0, -1));
  CALL(posix_fadvise(fd, 0, 0, 6));
  CALL(posix_fadvise(fd, 0, 0, 7));
  EXPECT_EQ(CALL(posix_fadvise(fd, 0, -1, POSIX_FADV_NORMAL)), EINVAL);
  const int other = CALL(open(t / "a", O_RDONLY));
  CALL(readahead(other, 0, 4096));
  CALL(readahead(other, -1, 4096));
  CALL(readahead(other, 1L << 40, 4096));
  CALL(readahead(other, 0, 0));
  CALL(close(other));
  CALL(close(fd));
  EXPECT_EQ(CALL(posix_fadvise(fd, 0, 0, 0)), EBADF);
  CALL(readahead(fd, 0, 1));
}
