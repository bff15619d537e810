// Files whose bytes, modes or times change while they are open or cached. An fd opened before the
// change sees the same as a kernel fd, and an fd opened after it sees the change. For changed
// names, see change_name_test.cc.
#include <sys/time.h>
#include <sys/uio.h>
#include <utime.h>

#include "tests/parity/seen_file.h"

using cube::parity::show;
using cube::parity::show_path;

PARITY(Change, WriteThroughAnotherFdIsSeen) {
  const char* const path = t.text("a", "0123456789");
  const int reader = CALL(open(path, O_RDONLY));
  char got[20] = {};
  CALL(read(reader, got, 3));
  const int writer = CALL(open(path, O_WRONLY));
  show(t, "opened for writing", reader);
  CALL(pwrite(writer, "ABCDEF", 6, 2));
  show(t, "written", reader);
  CALL(read(reader, got, 20));
  t.bytes("rest", got, 7);
  CALL(lseek(writer, 0, SEEK_END));
  CALL(write(writer, "more", 4));
  CALL(read(reader, got, 20));
  show(t, "longer", reader);
  show_path(t, path);
  CALL(close(writer));
  show(t, "closed", reader);
  show_path(t, path);
  CALL(close(reader));
}

PARITY(Change, EveryWayToWrite) {
  const char* const path = t.text("a", "0123456789");
  struct iovec part {
    const_cast<char*>("vec"), 3
  };
  const int reader = CALL(open(path, O_RDONLY));
  show_path(t, path);
  int fd = CALL(open(path, O_RDWR));
  CALL(writev(fd, &part, 1));
  show(t, "writev", reader);
  CALL(pwritev(fd, &part, 1, 8));
  show(t, "pwritev", reader);
  CALL(ftruncate(fd, 5));
  show(t, "ftruncate", reader);
  CALL(close(fd));
  show_path(t, path);
  fd = CALL(open(path, O_WRONLY | O_APPEND));
  CALL(write(fd, "tail", 4));
  CALL(close(fd));
  show_path(t, path);
  CALL(truncate(path, 3));
  show_path(t, path);
  show(t, "truncate", reader);
  CALL(truncate64(path, 30));
  show_path(t, path);
  FILE* const stream = STDIO(nullptr, fopen(path, "r+"));
  CALL(fputs("stdio", stream));
  CALL(fclose(stream));
  show_path(t, path);
  fd = CALL(open(path, O_RDWR));
  char* const map =
      CALL(static_cast<char*>(mmap(nullptr, 30, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)));
  CALL(close(fd));
  map[0] = 'M';
  show(t, "mapped write", reader);
  show_path(t, path);
  map[1] = 'M';
  show(t, "mapped write", reader);
  show_path(t, path);
  CALL(munmap(map, 30));
  show_path(t, path);
  CALL(close(reader));
}

PARITY(Change, WriteThroughASymlinkOrHardLink) {
  t.text("a", "original");
  t.link("sym", "a");
  t.hard("hard", "a");
  for (const char* name : {"a", "sym", "hard"}) show_path(t, t / name);
  const int reader = CALL(open(t / "a", O_RDONLY));
  int fd = CALL(open(t / "hard", O_WRONLY));
  CALL(write(fd, "by hard", 7));
  CALL(close(fd));
  for (const char* name : {"a", "sym", "hard"}) show_path(t, t / name);
  show(t, "reader", reader);
  fd = CALL(open(t / "sym", O_WRONLY | O_TRUNC));
  CALL(write(fd, "by sym", 6));
  CALL(close(fd));
  for (const char* name : {"a", "sym", "hard"}) show_path(t, t / name);
  CALL(truncate(t / "sym", 2));
  for (const char* name : {"a", "sym", "hard"}) show_path(t, t / name);
  show(t, "reader", reader);
  CALL(unlink(t / "hard"));
  for (const char* name : {"a", "sym", "hard"}) show_path(t, t / name);
  CALL(link(t / "a", t / "hard2"));
  for (const char* name : {"a", "hard2"}) show_path(t, t / name);
  CALL(linkat(AT_FDCWD, t / "sym", AT_FDCWD, t / "hard3", AT_SYMLINK_FOLLOW));
  show_path(t, t / "hard3");
  CALL(close(reader));
}

PARITY(Change, WriteThroughAnUncoveredName) {
  // A link outside the prefix to a file inside.
  const std::string outside = "/tmp/cubeshim-parity-out-" + std::to_string(getpid()) +
                              t.root().substr(t.root().rfind('/') + 1);
  t.text("a", "original");
  show_path(t, t / "a");
  const int reader = CALL(open(t / "a", O_RDONLY));
  CALL(symlink(t / "a", outside.c_str()));
  int fd = CALL(open(outside.c_str(), O_WRONLY));
  CALL(write(fd, "changed", 7));
  CALL(close(fd));
  show_path(t, t / "a");
  show(t, "reader", reader);
  CALL(truncate(outside.c_str(), 3));
  show_path(t, t / "a");
  CALL(unlink(outside.c_str()));
  CALL(close(reader));
}

PARITY(Change, ModesOwnersAndTimes) {
  const char* const path = t.text("a", "some bytes");
  t.link("l", "a");
  const int reader = CALL(open(path, O_RDONLY));
  const timespec times[2] = {{1000, 0}, {2000, 5}};
  const timeval micro[2] = {{3000, 0}, {4000, 6}};
  const utimbuf seconds{5000, 6000};
  show_path(t, path);
  CALL(chmod(path, 0600));
  show_path(t, path);
  CALL(fchmodat(AT_FDCWD, path, 0640, 0));
  show_path(t, path);
  CALL(chown(path, 1, 2));
  show_path(t, path);
  CALL(lchown(t / "l", 5, 6));
  show_path(t, path);
  CALL(fchownat(AT_FDCWD, t / "l", 3, 4, 0));
  show_path(t, path);
  CALL(utimensat(AT_FDCWD, path, times, 0));
  show_path(t, path);
  CALL(utimes(path, micro));
  show_path(t, path);
  CALL(utime(path, &seconds));
  show_path(t, path);
  CALL(lutimes(t / "l", micro));
  show_path(t, path);
  CALL(futimesat(AT_FDCWD, path, micro));
  show_path(t, path);
  CALL(fchmod(reader, 0444));
  show_path(t, path);
  CALL(futimens(reader, times));
  show_path(t, path);
  CALL(futimes(reader, micro));
  show_path(t, path);
  CALL(fchown(reader, 7, 8));
  show_path(t, path);
  show(t, "reader", reader);
  CALL(close(reader));
}

PARITY(Change, MetadataByAFreshFd) {
  // The same changes, each made through a fresh fd of a served file.
  const timespec times[2] = {{1000, 0}, {2000, 5}};
  const char* const path = t.text("a", "some bytes");
  show_path(t, path);
  int fd = CALL(open(path, O_RDONLY));
  CALL(fchmod(fd, 0604));
  show(t, "fd", fd);
  CALL(close(fd));
  show_path(t, path);
  fd = CALL(open(path, O_RDONLY));
  CALL(futimens(fd, times));
  CALL(close(fd));
  show_path(t, path);
  fd = CALL(open(path, O_RDONLY));
  CALL(fchown(fd, 9, 9));
  CALL(close(fd));
  show_path(t, path);
}

PARITY(Change, ReaderOpenedDuringWriting) {
  const char* const path = t.text("a", "start");
  const int writer = CALL(open(path, O_RDWR));
  const int reader = CALL(open(path, O_RDONLY));
  show(t, "reader", reader);
  CALL(pwrite(writer, "STARTED", 7, 0));
  show(t, "reader", reader);
  const int copy = CALL(dup(writer));
  CALL(close(writer));
  CALL(pwrite(copy, "again and again", 15, 0));
  show(t, "reader", reader);
  show_path(t, path);
  CALL(dup2(copy, 40));
  CALL(close(copy));
  CALL(pwrite(40, "once more", 9, 0));
  show(t, "reader", reader);
  show_path(t, path);
  CALL(close(40));
  show_path(t, path);
  CALL(close(reader));
}

PARITY(Change, ChildWritesWhileTheParentReads) {
  const char* const path = t.text("a", "parent's");
  const int reader = CALL(open(path, O_RDONLY));
  show(t, "before", reader);
  t.in_child([&] {
    const int fd = CALL(open(path, O_WRONLY));
    CALL(pwrite(fd, "child's!!", 9, 0));
    CALL(close(fd));
  });
  show(t, "after", reader);
  show_path(t, path);
  CALL(close(reader));
}

PARITY(Change, WriterInheritedByAChild) {
  const char* const path = t.text("a", "parent's");
  show_path(t, path);
  const int writer = CALL(open(path, O_WRONLY));
  t.in_child([&] { CALL(pwrite(writer, "CHILD", 5, 0)); });
  CALL(close(writer));
  show_path(t, path);
  show_path(t, path);
}

PARITY(Change, CopiesIntoACoveredFile) {
  t.text("from", "the source's bytes");
  t.text("to", "target");
  show_path(t, t / "to");
  const int from = CALL(open(t / "from", O_RDONLY));
  const int to = CALL(open(t / "to", O_WRONLY | O_TRUNC));
  CALL(copy_file_range(from, nullptr, to, nullptr, 100, 0));
  CALL(close(to));
  show_path(t, t / "to");
  CALL(lseek(from, 0, SEEK_CUR));
  CALL(close(from));
}

PARITY(Change, ByPathThroughASymlinkOnly) {
  // The file has one link, and the symlink's own name was never opened.
  const timespec times[2] = {{1000, 0}, {2000, 5}};
  t.text("a", "0123456789");
  t.link("l", "a");
  t.link("absolute", t / "a");
  const int reader = CALL(open(t / "a", O_RDONLY));
  CALL(truncate(t / "l", 5));
  show(t, "reader", reader);
  show_path(t, t / "a");
  CALL(truncate(t / "absolute", 3));
  show(t, "reader", reader);
  show_path(t, t / "a");
  CALL(chmod(t / "l", 0600));
  show_path(t, t / "a");
  CALL(utimensat(AT_FDCWD, t / "l", times, 0));
  show_path(t, t / "a");
  CALL(close(reader));
}
