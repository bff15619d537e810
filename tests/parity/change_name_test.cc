// Names that are created, removed or given to another file. Readers that have the old file open
// keep it, and later opens get the new file.
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/xattr.h>

#include "tests/parity/seen_file.h"

using cube::parity::show;
using cube::parity::show_path;

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

// Files that were cached by the real path must not be served any longer.
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
    // Saves a file like many programs: a temporary file is renamed over the old file.
    const char* const saved = t.text("saved" + std::to_string(which), "before");
    show_path(t, saved);
    CALL(rename(pattern.c_str(), saved));
    show_path(t, saved);
  }
}

PARITY(Change, NegativeEntryEndsWhenTheFileIsMade) {
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

namespace {

// Two pages, the second of which is inaccessible. The first page ends with the beginning of a path
// that has no terminating zero.
const char* path_without_end() {
  constexpr std::size_t k_page = 4096;
  auto* const pages = static_cast<char*>(
      mmap(nullptr, 2 * k_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_NE(pages, MAP_FAILED);
  EXPECT_EQ(mprotect(pages + k_page, k_page, PROT_NONE), 0);
  pages[k_page - 2] = '/';
  pages[k_page - 1] = 'a';
  return pages + k_page - 2;
}

}  // namespace

PARITY(Change, PathsInUnmappedMemoryAreRefused) {
  const char* const path = t.file("a");
  const int dir = CALL(open(t / ".", O_RDONLY | O_DIRECTORY));
  const char* const endless = path_without_end();
  for (const char* const bad : {endless, endless + 2}) {
    CALL(unlink(bad));
    EXPECT_EQ(errno, EFAULT);
    CALL(unlinkat(dir, bad, 0));
    CALL(unlinkat(-1, bad, 0));
    CALL(remove(bad));
    CALL(rmdir(bad));
    CALL(rename(bad, t / "b"));
    CALL(rename(path, bad));
    CALL(renameat(dir, "a", dir, bad));
    CALL(link(bad, t / "b"));
    CALL(link(path, bad));
    CALL(linkat(dir, "a", dir, bad, 0));
    CALL(symlink("a", bad));
    CALL(symlink(bad, t / "b"));
    CALL(mkdir(bad, 0755));
    CALL(mknod(bad, S_IFIFO | 0644, 0));
    CALL(mkfifo(bad, 0644));
    CALL(truncate(bad, 0));
    CALL(chmod(bad, 0600));
    CALL(fchmodat(dir, bad, 0600, 0));
    CALL(chown(bad, 0, 0));
    CALL(lchown(bad, 0, 0));
    CALL(fchownat(dir, bad, 0, 0, 0));
    CALL(utimes(bad, nullptr));
    CALL(utimensat(dir, bad, nullptr, 0));
    CALL(removexattr(bad, "user.tag"));
    CALL(removexattr(path, bad));
    CALL(setxattr(path, bad, "x", 1, 0));
    struct statfs volume {};
    CALL(statfs(bad, &volume));
    struct statvfs same {};
    CALL(statvfs(bad, &same));
    CALL(getxattr(bad, "user.tag", nullptr, 0));
    CALL(listxattr(bad, nullptr, 0));
    CALL(creat(bad, 0644));
    CALL(open(bad, O_WRONLY));
    CALL(openat(dir, bad, O_CREAT | O_RDWR, 0644));
    EXPECT_EQ(errno, EFAULT);
    CALL(syscall(SYS_unlinkat, dir, bad, 0));
  }
  show_path(t, path);
  CALL(munmap(const_cast<char*>(endless) + 2 - 4096, 2 * 4096));
}
