// Files that change while they are open or cached: what was opened before sees what a kernel fd would see, and what is
// opened after sees the new.
#include <sys/time.h>
#include <sys/uio.h>
#include <utime.h>

#include "tests/support/parity_case.h"

namespace {

void show(cube::parity::Case& t, const char* label, int fd) {
  char got[64] = {};
  struct stat st {};
  CALL(pread(fd, got, sizeof got, 0));
  t.bytes(label, got, sizeof got);
  CALL(fstat(fd, &st));
  t.line(std::string(label) + " size " + std::to_string(st.st_size) + " links " + std::to_string(st.st_nlink) + " mode " +
         std::to_string(st.st_mode));
  CALL(lseek(fd, 0, SEEK_CUR));
}
void show_path(cube::parity::Case& t, const char* path) {
  const int fd = CALL(open(path, O_RDONLY));
  if (fd < 0) return;
  show(t, "by path", fd);
  struct stat st {};
  CALL(fstat(fd, &st));
  t.stat("fstat", st, path);
  CALL(close(fd));
  CALL(stat(path, &st));
  t.stat("stat", st, path);
}

}  // namespace

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
  char* const map = CALL(static_cast<char*>(mmap(nullptr, 30, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)));
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

PARITY(Change, UnlinkedFileStaysReadable) {
  for (const char* how : {"unlink", "unlinkat", "remove"}) {
    t.line(how);
    const char* const path = t.text(how, "to be removed");
    const int fd = CALL(open(path, O_RDONLY));
    char got[5] = {};
    CALL(read(fd, got, 5));
    if (*how == 'r') {
      CALL(remove(path));
    } else if (how[6] == 'a') {
      CALL(unlinkat(AT_FDCWD, path, 0));
    } else {
      CALL(unlink(path));
    }
    CALL(open(path, O_RDONLY));
    EXPECT_EQ(errno, ENOENT);
    struct stat st {};
    CALL(stat(path, &st));
    CALL(access(path, R_OK));
    show(t, "unlinked", fd);
    CALL(read(fd, got, 5));
    t.bytes("got", got, 5);
    FILE* const again = STDIO(nullptr, fopen(path, "w"));
    CALL(fputs("another", again));
    CALL(fclose(again));
    show(t, "the old one", fd);
    show_path(t, path);
    CALL(close(fd));
  }
}

PARITY(Change, RenameOverAnOpenFile) {
  const char* const path = t.text("a", "old bytes");
  const char* const next = t.text("b", "new bytes!");
  const int old_fd = CALL(open(path, O_RDONLY));
  const int new_fd = CALL(open(next, O_RDONLY));
  CALL(rename(next, path));
  show(t, "old", old_fd);
  show(t, "new", new_fd);
  show_path(t, path);
  CALL(open(next, O_RDONLY));
  CALL(renameat(AT_FDCWD, path, AT_FDCWD, t / "c"));
  show_path(t, t / "c");
  CALL(open(path, O_RDONLY));
  show(t, "new", new_fd);
  CALL(close(old_fd));
  CALL(close(new_fd));
}

PARITY(Change, RenameExchangesTwoFiles) {
  t.text("a", "was a");
  t.text("b", "was b and longer");
  const int a = CALL(open(t / "a", O_RDONLY));
  CALL(close(CALL(open(t / "b", O_RDONLY))));
  CALL(renameat2(AT_FDCWD, t / "a", AT_FDCWD, t / "b", RENAME_EXCHANGE));
  show_path(t, t / "a");
  show_path(t, t / "b");
  show(t, "fd", a);
  CALL(renameat2(AT_FDCWD, t / "a", AT_FDCWD, t / "b", RENAME_NOREPLACE));
  EXPECT_EQ(errno, EEXIST);
  show_path(t, t / "a");
  CALL(close(a));
}

PARITY(Change, RenamedDirectoryTakesItsFilesAlong) {
  t.dir("d");
  t.dir("d/e");
  t.text("d/e/f", "first");
  show_path(t, t / "d/e/f");
  CALL(rename(t / "d", t / "z"));
  CALL(open(t / "d/e/f", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  show_path(t, t / "z/e/f");
  t.dir("d");
  t.dir("d/e");
  t.text("d/e/f", "second!");
  show_path(t, t / "d/e/f");
  show_path(t, t / "z/e/f");
}

PARITY(Change, DirectoriesAreRenamedByNamesThatEndInASlash) {
  const char* const spellings[] = {"d/", "d//", "./d/", "d/e/../../d/"};
  for (const char* const spelling : spellings) {
    t.dir("d");
    t.dir("d/e");
    t.text("d/f", "first");
    show_path(t, t / "d/f");
    CALL(rename(t / spelling, t / "z/"));
    CALL(open(t / "d/f", O_RDONLY));
    EXPECT_EQ(errno, ENOENT);
    show_path(t, t / "z/f");
    CALL(unlink(t / "z/f"));
    CALL(rmdir(t / "z/e"));
    CALL(rmdir(t / "z"));
  }
}

// Once a bug: what was cached by the real path was served on.
PARITY(Change, DirectoriesAndLinksAreRenamedThroughLinks) {
  t.dir("d");
  t.dir("d/e");
  t.text("d/e/f", "first");
  t.link("l", "d");
  char elsewhere[] = "/tmp/cubeshim-parity-XXXXXX";
  CALL(symlink(t / "d", (std::string(mkdtemp(elsewhere)) + "/l").c_str()));
  const auto is_gone = [&](const char* path) {
    CALL(open(path, O_RDONLY));
    EXPECT_EQ(errno, ENOENT);
  };
  show_path(t, t / "d/e/f");
  show_path(t, t / "l/e/f");
  CALL(rename(t / "l/e", t / "d/z"));
  is_gone(t / "d/e/f");
  is_gone(t / "l/e/f");
  show_path(t, t / "d/z/f");
  t.line("from outside");
  CALL(rename((std::string(elsewhere) + "/l/z").c_str(), t / "d/y"));
  is_gone(t / "d/z/f");
  show_path(t, t / "d/y/f");
  t.line("a link");
  t.link("d/k", "y");
  show_path(t, t / "d/k/f");
  CALL(rename(t / "l/k", t / "d/m"));
  is_gone(t / "d/k/f");
  show_path(t, t / "d/m/f");
  t.line("a file");
  CALL(unlink((std::string(elsewhere) + "/l/y/f").c_str()));
  is_gone(t / "d/y/f");
  is_gone(t / "d/m/f");
  unlink((std::string(elsewhere) + "/l").c_str());
  rmdir(elsewhere);
}

PARITY(Change, OpenFilesBelowARenamedDirectoryAreStillTheOrigins) {
  t.dir("d");
  t.dir("d/e");
  const int fd = CALL(open(t.file("d/e/f", 100), O_RDONLY));
  char got[10];
  CALL(read(fd, got, 10));
  CALL(rename(t / "d", t / "z"));
  CALL(fsync(fd));
  t.expect_kernel(fd);
  struct stat st {};
  CALL(fstat(fd, &st));
  t.stat("renamed", st, t / "z/e/f");
  CALL(read(fd, got, 10));
  t.bytes("got", got, 10);
  CALL(close(fd));
}

PARITY(Change, SymlinkFlips) {
  t.text("one", "one");
  t.text("two", "two two");
  t.dir("d1");
  t.dir("d2");
  t.text("d1/f", "d1");
  t.text("d2/f", "d2 d2");
  CALL(symlink("one", t / "l"));
  CALL(symlink("d1", t / "d"));
  show_path(t, t / "l");
  show_path(t, t / "l");
  show_path(t, t / "d/f");
  CALL(unlink(t / "l"));
  CALL(symlink("two", t / "l"));
  show_path(t, t / "l");
  CALL(unlink(t / "d"));
  CALL(symlink("d2", t / "d"));
  show_path(t, t / "d/f");
  CALL(symlink("d1", t / "next"));
  CALL(rename(t / "next", t / "d"));
  show_path(t, t / "d/f");
  CALL(symlink("one", t / "next"));
  CALL(rename(t / "next", t / "l"));
  show_path(t, t / "l");
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
  const std::string outside = "/tmp/cubeshim-parity-out-" + std::to_string(getpid()) + t.root().substr(t.root().rfind('/') + 1);
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
  // The same, each through an fd that has just been served.
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

PARITY(Change, TemporaryFilesAndNewNames) {
  for (const int which : {0, 1, 2, 3}) {
    std::string pattern = t / "t-XXXXXX";
    if (which >= 2) pattern += ".sfx";
    int fd = -1;
    if (which == 0) fd = CALL(mkstemp(pattern.data()));
    if (which == 1) fd = CALL(mkostemp(pattern.data(), O_APPEND));
    if (which == 2) fd = CALL(mkstemps(pattern.data(), 4));
    if (which == 3) fd = CALL(mkostemps(pattern.data(), 4, O_CLOEXEC));
    CALL(write(fd, "temporary", 9));
    const int reader = CALL(open(pattern.c_str(), O_RDONLY));
    show(t, "reader", reader);
    CALL(write(fd, " more", 5));
    show(t, "reader", reader);
    CALL(close(fd));
    show(t, "reader", reader);
    CALL(close(reader));
    show_path(t, pattern.c_str());
    // Saved as programs do it: a temporary file renamed over the old.
    const char* const saved = t.text("saved" + std::to_string(which), "before");
    show_path(t, saved);
    CALL(rename(pattern.c_str(), saved));
    show_path(t, saved);
  }
}

PARITY(Change, AbsenceIsNotRemembered) {
  CALL(open(t / "later", O_RDONLY));
  struct stat st {};
  CALL(stat(t / "later", &st));
  CALL(access(t / "later", F_OK));
  t.text("later", "now it is there");
  show_path(t, t / "later");
  CALL(access(t / "later", F_OK));
}

PARITY(Change, DirectoriesComeAndGo) {
  t.dir("d");
  t.text("d/f", "x");
  show_path(t, t / "d/f");
  CALL(rmdir(t / "d"));
  EXPECT_EQ(errno, ENOTEMPTY);
  CALL(unlink(t / "d/f"));
  CALL(rmdir(t / "d"));
  CALL(open(t / "d/f", O_RDONLY));
  CALL(mkdir(t / "d", 0755));
  CALL(open(t / "d/f", O_RDONLY));
  FILE* const f = STDIO(nullptr, fopen(t / "d/f", "w"));
  CALL(fputs("again", f));
  CALL(fclose(f));
  show_path(t, t / "d/f");
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

PARITY(Change, LockedReplaceByLink) {
  t.text("a", "a");
  t.text("b", "bb");
  show_path(t, t / "a");
  CALL(link(t / "b", t / "a"));
  EXPECT_EQ(errno, EEXIST);
  CALL(unlink(t / "a"));
  CALL(link(t / "b", t / "a"));
  show_path(t, t / "a");
  show_path(t, t / "b");
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
  // One link, and the symlink's own name was never opened.
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
