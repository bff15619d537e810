// Calls by which the kernel moves bytes out of a served file, with all kinds of offsets. Also calls
// that fail.
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include <climits>

#include "tests/support/parity_case.h"

namespace {

void show_pipe(cube::parity::Case& t, int pipe_fd) {
  static char got[70000];
  const ssize_t n = CALL(read(pipe_fd, got, sizeof got));
  t.bytes("pipe", got, n > 0 ? n : 0);
}

}  // namespace

PARITY(Transfer, SendfileOffsets) {
  const char* const path = t.file("a", 60000);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  const int to = CALL(memfd_create("x", 0));
  for (const off_t start : {0L, 59990L, 60000L, 70000L, -1L, LONG_MAX, LONG_MIN}) {
    for (const bool wide : {false, true}) {
      off_t at = start;
      const int fd = fresh();
      CALL(lseek(fd, 5, SEEK_SET));
      CALL(wide ? sendfile64(to, fd, &at, 100) : sendfile(to, fd, &at, 100));
      t.line("at " + std::to_string(at));
      CALL(lseek(fd, 0, SEEK_CUR));
      CALL(close(fd));
    }
  }
  CALL(sendfile(to, fresh(), nullptr, 0));
  CALL(sendfile(to, fresh(), nullptr, SIZE_MAX));
  CALL(sendfile(to, fresh(), reinterpret_cast<off_t*>(8), 10));
  CALL(sendfile(fresh(), fresh(), nullptr, 10));
  EXPECT_EQ(errno, EBADF);
  CALL(sendfile(-1, fresh(), nullptr, 10));
  CALL(lseek(to, 0, SEEK_CUR));
}

PARITY(Transfer, CopyFileRangeOffsets) {
  const char* const path = t.file("a", 60000);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  const int to = CALL(open(t / "out", O_RDWR | O_CREAT, 0644));
  for (const off_t start : {0L, 59990L, 60000L, 70000L, -1L, LONG_MAX}) {
    off_t from_at = start, to_at = 1000;
    const int fd = fresh();
    CALL(copy_file_range(fd, &from_at, to, &to_at, 100, 0));
    t.line(std::to_string(from_at) + " " + std::to_string(to_at));
    CALL(lseek(fd, 0, SEEK_CUR));
    from_at = start;
    CALL(copy_file_range(fd, &from_at, to, nullptr, 100, 0));
    CALL(lseek(to, 0, SEEK_CUR));
    to_at = 0;
    CALL(copy_file_range(fd, nullptr, to, &to_at, 7, 0));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(close(fd));
  }
  const int same = CALL(open(path, O_RDWR));
  off_t a = 0, b = 100;
  CALL(copy_file_range(same, &a, same, &b, 1000, 0));
  CALL(copy_file_range(fresh(), nullptr, -1, nullptr, 10, 0));
  CALL(copy_file_range(fresh(), nullptr, CALL(open(t.root().c_str(), O_RDONLY)), nullptr, 10, 0));
  CALL(copy_file_range(fresh(), nullptr, CALL(open(t / "out", O_WRONLY | O_APPEND)), nullptr, 10,
                       0));
  CALL(copy_file_range(fresh(), nullptr, to, nullptr, SIZE_MAX, 0));
  int pipe_fds[2];
  CALL(pipe(pipe_fds));
  CALL(copy_file_range(fresh(), nullptr, pipe_fds[1], nullptr, 10, 0));
  // A covered file copied onto another covered file.
  CALL(lseek(to, 0, SEEK_SET));
  static char got[70000];
  const ssize_t n = CALL(read(to, got, sizeof got));
  t.bytes("out", got, n > 0 ? n : 0);
}

PARITY(Transfer, SpliceBothWays) {
  const char* const path = t.file("a", 5000);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  int one[2], two[2];
  CALL(pipe2(one, O_NONBLOCK));
  CALL(pipe2(two, O_NONBLOCK));
  const int fd = fresh();
  CALL(lseek(fd, 10, SEEK_SET));
  CALL(splice(fd, nullptr, one[1], nullptr, 100, SPLICE_F_MOVE));
  CALL(lseek(fd, 0, SEEK_CUR));
  for (const off_t start : {4990L, 5000L, -1L, LONG_MAX}) {
    off_t at = start;
    CALL(splice(fresh(), &at, one[1], nullptr, 100, SPLICE_F_NONBLOCK));
    t.line("at " + std::to_string(at));
  }
  CALL(tee(one[0], two[1], 50, 0));
  show_pipe(t, one[0]);
  show_pipe(t, two[0]);
  CALL(write(one[1], "into the file", 13));
  CALL(splice(one[0], nullptr, fresh(), nullptr, 4, SPLICE_F_NONBLOCK));
  EXPECT_EQ(errno, EBADF);
  const int writer = CALL(open(path, O_RDWR));
  off_t at = 20;
  CALL(splice(one[0], nullptr, writer, &at, 4, 0));
  char got[8] = {};
  CALL(pread(fd, got, 8, 18));
  t.bytes("seen by the reader", got, 8);
  off_t pipe_at = 0;
  CALL(splice(fresh(), nullptr, one[1], &pipe_at, 10, 0));
  EXPECT_EQ(errno, ESPIPE);
  CALL(splice(fresh(), nullptr, fresh(), nullptr, 10, 0));
  CALL(splice(fresh(), nullptr, one[1], nullptr, 0, 0));
  CALL(splice(fresh(), nullptr, one[1], nullptr, 10, 0xff00));
  CALL(tee(fresh(), two[1], 10, 0));
  CALL(tee(one[0], fresh(), 10, 0));
  iovec part{got, 8};
  CALL(vmsplice(one[1], &part, 1, SPLICE_F_NONBLOCK));
  CALL(vmsplice(fresh(), &part, 1, 0));
}

PARITY(Transfer, VectorsAtTheirLimits) {
  const char* const path = t.file("a", 3000);
  static iovec many[IOV_MAX + 1];
  static char room[IOV_MAX + 1];
  for (int i = 0; i <= IOV_MAX; ++i)
    many[i] = {room + i, static_cast<std::size_t>(i % 3 == 1 ? 0 : 1)};
  const int fd = CALL(open(path, O_RDONLY));
  CALL(readv(fd, many, IOV_MAX));
  t.bytes("got", room, sizeof room);
  CALL(preadv(fd, many, IOV_MAX, 2900));
  CALL(preadv64v2(fd, many, IOV_MAX, -1, 0));
  CALL(preadv2(fd, many, IOV_MAX + 1, 0, 0));
  CALL(lseek(fd, 0, SEEK_CUR));
  char overlap[40] = {};
  iovec over[4] = {{overlap, 20}, {overlap + 10, 20}, {overlap, 5}, {overlap + 2, 0}};
  CALL(preadv(fd, over, 4, 100));
  t.bytes("overlapping", overlap, sizeof overlap);
  iovec same[3] = {{overlap, 8}, {overlap, 8}, {overlap, 8}};
  CALL(readv(fd, same, 3));
  t.bytes("three times", overlap, sizeof overlap);
  iovec empty[3] = {{nullptr, 0}, {nullptr, 0}, {overlap, 0}};
  CALL(readv(fd, empty, 3));
  CALL(preadv(fd, empty, 3, 2999));
  CALL(preadv(fd, empty, 3, LONG_MAX));
  CALL(preadv(fd, over, 4, LONG_MAX));
  CALL(preadv(fd, over, 4, LONG_MAX - 10));
  t.expect_served(fd);
  // writes
  CALL(writev(fd, over, 2));
  EXPECT_EQ(errno, EBADF);
  CALL(pwritev(fd, over, 2, 0));
  CALL(pwritev2(fd, over, 2, 0, 0));
  CALL(pwritev64(fd, over, 2, -1));
  CALL(pwritev64v2(fd, over, 2, 0, RWF_APPEND));
  CALL(pwrite64(fd, overlap, 2, 0));
  CALL(writev(fd, over, -1));
  CALL(read(fd, overlap, 3));
}

PARITY(Transfer, FlagsOfVectorReads) {
  const char* const path = t.file("a", 3000);
  char got[16] = {};
  iovec part{got, 16};
  for (const int flags : {RWF_HIPRI, RWF_DSYNC, RWF_SYNC, RWF_APPEND, 0x20 /* RWF_NOAPPEND */,
                          0x40 /* RWF_ATOMIC */, 0x80 /* RWF_DONTCACHE */, 0x100, INT_MIN}) {
    t.line("flags " + std::to_string(flags));
    const int fd = CALL(open(path, O_RDONLY));
    CALL(lseek(fd, 100, SEEK_SET));
    CALL(preadv2(fd, &part, 1, 50, flags));
    CALL(preadv2(fd, &part, 1, -1, flags));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(close(fd));
  }
  // The kernel decides whether the pages are present, but the bytes must be right.
  const int fd = CALL(open(path, O_RDONLY));
  if (preadv2(fd, &part, 1, 50, RWF_NOWAIT) == 16) {
    EXPECT_EQ(std::string(got, 16), cube::parity::content_of("a", 3000).substr(50, 16));
  }
  CALL(preadv64v2(fd, &part, 1, -2, RWF_HIPRI));
}

PARITY(Transfer, SizesOfAFileOpenForReading) {
  const char* const path = t.file("a", 3000);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  CALL(ftruncate(fresh(), 10));
  EXPECT_EQ(errno, EINVAL);
  CALL(ftruncate64(fresh(), -1));
  CALL(fallocate(fresh(), 0, 0, 10));
  EXPECT_EQ(errno, EBADF);
  CALL(fallocate(fresh(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10));
  CALL(fallocate(fresh(), 0x40000000, 0, 10));
  CALL(fallocate(fresh(), 0, -1, 10));
  CALL(fallocate64(fresh(), 0, 0, 0));
  CALL(posix_fallocate(fresh(), 0, 10));
  CALL(posix_fallocate64(fresh(), -1, 10));
  CALL(syncfs(fresh()));
  CALL(fsync(fresh()));
  CALL(fdatasync(fresh()));
  for (const unsigned flags : {0U, 7U, 8U}) CALL(sync_file_range(fresh(), 0, 100, flags));
  CALL(sync_file_range(fresh(), -1, 100, 0));
  CALL(readahead(fresh(), 0, 100));
  CALL(readahead(fresh(), -1, 100));
  CALL(readahead(CALL(open(path, O_WRONLY)), 0, 100));
  for (const int advice : {0, 5, 6, 7, -1, INT_MAX}) CALL(posix_fadvise(fresh(), 0, 0, advice));
  for (const off_t at : {-1L, LONG_MIN, LONG_MAX})
    CALL(posix_fadvise64(fresh(), at, 10, POSIX_FADV_WILLNEED));
  CALL(posix_fadvise(fresh(), 0, LONG_MIN, POSIX_FADV_NORMAL));
  CALL(posix_fadvise(fresh(), 0, -1, 99));
  CALL(truncate(path, -1));
  CALL(truncate(path, LONG_MAX));
  CALL(truncate(t / "none", 0));
  CALL(truncate(t.root().c_str(), 0));
  CALL(truncate64(path, 3001));
  CALL(lseek(fresh(), 0, SEEK_END));
}
