// Names that are made by calls other than open, and attributes of the names themselves.
#include <sys/xattr.h>

#include "tests/support/parity_case.h"

using cube::parity::function;

PARITY(NewName, EveryKind) {
  const char* const path = t.file("a");
  const int dir = CALL(open(t / ".", O_RDONLY | O_DIRECTORY));
  struct stat st {};
  CALL(mkfifo(t / "fifo", 0644));
  CALL(mkfifo(t / "fifo", 0644));
  CALL(mkfifoat(dir, "fifo at", 0600));
  CALL(mknod(t / "node", S_IFIFO | 0644, 0));
  CALL(mknodat(dir, "node at", S_IFREG | 0644, 0));
  dev_t none = 0;
  errno = cube::parity::k_errno_kept;
  t.note("__xmknod", function<int(int, const char*, mode_t, dev_t*)>("__xmknod")(
                         0, t / "x", S_IFIFO | 0644, &none));
  errno = cube::parity::k_errno_kept;
  t.note("__xmknodat", function<int(int, int, const char*, mode_t, dev_t*)>("__xmknodat")(
                           0, dir, "x at", S_IFIFO | 0644, &none));
  CALL(mkdirat(dir, "folder", 0755));
  CALL(symlinkat("a", dir, "link"));
  for (const char* name : {"fifo", "fifo at", "node", "node at", "x", "x at", "folder", "link"}) {
    CALL(lstat(t / name, &st));
    t.line(std::string(name) + " " + std::to_string(st.st_mode));
  }
  std::string pattern = t / "made-XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  CALL(rmdir(pattern.c_str()));
  pattern = t / "none/made-XXXXXX";
  EXPECT_EQ(mkdtemp(pattern.data()), nullptr);
  EXPECT_EQ(errno, ENOENT);
  CALL(lchmod(path, 0600));
  CALL(stat(path, &st));
  t.line("mode " + std::to_string(st.st_mode));
}

PARITY(NewName, AttributesOfTheNameItself) {
  const char* const path = t.file("a");
  t.link("l", "a");
  char got[256] = {};
  CALL(setxattr(path, "user.tag", "x", 1, 0));
  CALL(llistxattr(t / "l", got, sizeof got));
  CALL(lgetxattr(t / "l", "user.tag", got, sizeof got));
  CALL(llistxattr(path, got, 0));
  CALL(lgetxattr(path, "user.tag", got, sizeof got));
  CALL(llistxattr(t / "none", got, sizeof got));
}
