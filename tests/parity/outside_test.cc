// Files that are changed without the library. With CUBESHIM_CONSISTENCY=open, the next open sees
// the change. Other settings promise nothing, so these tests are skipped.
#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

namespace sys = cube::base::sys;

namespace {

void show(cube::parity::Case& t, const char* label, const char* path) {
  t.line(label);
  const int fd = CALL(open(path, O_RDONLY));
  if (fd < 0) return;
  char got[64] = {};
  CALL(read(fd, got, sizeof got));
  t.bytes(label, got, sizeof got);
  struct stat st {};
  CALL(fstat(fd, &st));
  t.stat(label, st, path);
  CALL(close(fd));
  FILE* const stream = STDIO(nullptr, fopen(path, "r"));
  CALL(fgetc(stream));
  CALL(fclose(stream));
}
// Writes without libc, so that the library does not see the write, as if another process had made
// it.
void write_unseen(const char* path, std::string_view content, int flags) {
  const int fd = static_cast<int>(sys::open(path, O_WRONLY | flags, 0644));
  sys::pwrite(fd, content.data(), content.size(), 0);
  sys::close(fd);
}

}  // namespace

PARITY(Outside, ChangesAreSeenByTheNextOpen) {
  if (!cube::parity::asks_the_origin()) GTEST_SKIP() << "CUBESHIM_CONSISTENCY is not \"open\"";
  const char* const path = t.text("a", "first");
  t.text("b", "another file");
  t.dir("d");
  t.dir("e");
  t.text("d/f", "in d");
  t.text("e/f", "in e, longer");
  t.link("l", "d");
  show(t, "first", path);
  show(t, "again", path);
  write_unseen(path, "grown by others", 0);
  show(t, "grown", path);
  sys::raw(SYS_truncate, sys::arg(path), 3);
  show(t, "truncated", path);
  const timespec times[2] = {{5000, 0}, {5000, 77}};
  sys::raw(SYS_utimensat, AT_FDCWD, sys::arg(path), sys::arg(times), 0);
  show(t, "dated", path);
  sys::raw(SYS_renameat2, AT_FDCWD, sys::arg(t / "b"), AT_FDCWD, sys::arg(path), 0);
  show(t, "replaced", path);
  sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(path), 0);
  show(t, "removed", path);
  write_unseen(path, "made anew", O_CREAT);
  show(t, "made anew", path);
  show(t, "by a link", t / "l/f");
  sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(t / "l"), 0);
  sys::raw(SYS_symlinkat, sys::arg("e"), AT_FDCWD, sys::arg(t / "l"));
  show(t, "by another link", t / "l/f");
  sys::raw(SYS_renameat2, AT_FDCWD, sys::arg(t / "d"), AT_FDCWD, sys::arg(t / "e"),
           RENAME_EXCHANGE);
  show(t, "directories exchanged", t / "d/f");
  show(t, "directories exchanged", t / "e/f");
}

PARITY(Outside, RightsAreAskedOfTheOriginByTheNextOpen) {
  if (!cube::parity::asks_the_origin()) GTEST_SKIP() << "CUBESHIM_CONSISTENCY is not \"open\"";
  const char* const path = t.text("a", "first");
  show(t, "first", path);
  sys::raw(SYS_fchmodat, AT_FDCWD, sys::arg(path), 0600);
  show(t, "another mode", path);
  sys::raw(SYS_fchownat, AT_FDCWD, sys::arg(path), 5, 6, 0);
  show(t, "another owner", path);
}
