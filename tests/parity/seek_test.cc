// lseek: every whence, the limits of offsets, holes.
#include <climits>

#include "tests/support/parity_case.h"

using cube::parity::function;

PARITY(Seek, MovesFromStartHereAndEnd) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  CALL(lseek(fd, 10, SEEK_SET));
  CALL(lseek(fd, 10, SEEK_CUR));
  CALL(lseek(fd, -5, SEEK_CUR));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(lseek(fd, -1, SEEK_END));
  char byte = 0;
  CALL(read(fd, &byte, 1));
  CALL(read(fd, &byte, 1));
  CALL(lseek(fd, 1000, SEEK_END));
  CALL(read(fd, &byte, 1));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(lseek(fd, -1100, SEEK_CUR));
  CALL(read(fd, &byte, 1));
  t.bytes("first byte", &byte, 1);
  for (const char* name : {"lseek", "lseek64", "__lseek"}) {
    errno = cube::parity::k_errno_kept;
    t.note(name, function<off_t(int, off_t, int)>(name)(fd, -7, SEEK_END));
  }
  t.expect_served(fd);
  CALL(close(fd));
  CALL(lseek(fd, 0, SEEK_SET));
  EXPECT_EQ(errno, EBADF);
}

PARITY(Seek, BadArgumentsLeaveTheOffset) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  CALL(lseek(fd, 42, SEEK_SET));
  CALL(lseek(fd, -1, SEEK_SET));
  EXPECT_EQ(errno, EINVAL);
  CALL(lseek(fd, -43, SEEK_CUR));
  CALL(lseek(fd, -101, SEEK_END));
  CALL(lseek(fd, 0, 5));
  CALL(lseek(fd, 0, -1));
  CALL(lseek(fd, 0, 99));
  CALL(lseek(fd, LONG_MIN, SEEK_SET));
  CALL(lseek(fd, LONG_MIN, SEEK_CUR));
  CALL(lseek(fd, LONG_MIN, SEEK_END));
  // In mode real, limits and holes depend on the file system, so the library asks the origin.
  if (cube::parity::is_virtual()) t.expect_served(fd);
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(lseek(fd, LONG_MAX, SEEK_CUR));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(lseek(fd, LONG_MAX, SEEK_END));
  CALL(lseek(fd, LONG_MAX, SEEK_SET));
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(close(fd));
}

PARITY(Seek, LargeOffsetsAreTheFileSystems) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  for (int bit = 30; bit < 63; ++bit) {
    CALL(lseek(fd, 1L << bit, SEEK_SET));
    CALL(lseek(fd, (1L << bit) - 1, SEEK_SET));
    CALL(lseek(fd, 0, SEEK_CUR));
  }
  char byte = 0;
  CALL(read(fd, &byte, 1));
  CALL(lseek(fd, 0, SEEK_SET));
  CALL(read(fd, &byte, 1));
  CALL(close(fd));
}

PARITY(Seek, ReadAtTheGreatestOffsetIsTheEnd) {
  const int fd = CALL(open(t.file("a", 100), O_RDONLY));
  char byte = 0;
  CALL(lseek(fd, 0xffffffeffffL, SEEK_SET));
  CALL(read(fd, &byte, 1));
  CALL(lseek(fd, 1L << 33, SEEK_SET));
  CALL(read(fd, &byte, 1));
  CALL(read(fd, &byte, 0));
  CALL(close(fd));
}

PARITY(Seek, DataAndHoleOfADenseFile) {
  const int fd = CALL(open(t.file("a", 10000), O_RDONLY));
  for (const off_t at : {0L, 1L, 4096L, 9999L, 10000L, 10001L, LONG_MAX}) {
    CALL(lseek(fd, at, SEEK_DATA));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(fd, at, SEEK_HOLE));
    CALL(lseek(fd, 0, SEEK_CUR));
  }
  if (cube::parity::is_virtual()) t.expect_served(fd);
  CALL(close(fd));
}

// The result is the start of the file on btrfs and ENXIO elsewhere, so only the kernel can answer.
PARITY(Seek, DataAndHoleOfNegativeOffsets) {
  t.file("a", 10000);
  for (const off_t at : {-1L, -4096L, LONG_MIN}) {
    for (const int whence : {SEEK_DATA, SEEK_HOLE}) {
      const int fd = CALL(open(t / "a", O_RDONLY));
      CALL(lseek(fd, 10, SEEK_SET));
      CALL(lseek(fd, at, whence));
      CALL(lseek(fd, 0, SEEK_CUR));
      t.expect_kernel(fd);
      CALL(close(fd));
    }
  }
}

PARITY(Seek, DataAndHoleOfASparseFile) {
  const int small = CALL(open(t.sparse("small", 8 << 10, 0), O_RDONLY));
  CALL(lseek(small, 0, SEEK_HOLE));
  CALL(lseek(small, 4096, SEEK_DATA));
  CALL(close(small));
  const int fd = CALL(open(t.sparse("a", 1 << 20, 512 << 10), O_RDONLY));
  for (const off_t at :
       {0L, 1L, 4096L, 512L << 10, (512L << 10) + 1, (516L << 10), (1L << 20) - 1, 1L << 20, -1L}) {
    CALL(lseek(fd, at, SEEK_DATA));
    CALL(lseek(fd, at, SEEK_HOLE));
  }
  CALL(lseek(fd, (512 << 10) - 2, SEEK_SET));
  char got[8];
  CALL(read(fd, got, 8));
  t.bytes("at the edge", got, 8);
  CALL(close(fd));
}

PARITY(Seek, DataAndHoleOfEmptyAndWhollySparseFiles) {
  const int empty = CALL(open(t.file("empty", 0), O_RDONLY));
  for (const off_t at : {0L, 1L, -1L}) {
    CALL(lseek(empty, at, SEEK_DATA));
    CALL(lseek(empty, at, SEEK_HOLE));
  }
  CALL(close(empty));
  const char* const path = t.sparse("holes", 1 << 20, 0);
  CALL(truncate(path, 0));
  CALL(truncate(path, 1 << 19));
  const int holes = CALL(open(path, O_RDONLY));
  CALL(lseek(holes, 0, SEEK_DATA));
  CALL(lseek(holes, 0, SEEK_HOLE));
  CALL(lseek(holes, 5000, SEEK_HOLE));
  CALL(close(holes));
}
