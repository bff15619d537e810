// Mounts that the program makes and removes below a prefix. Root only.
#include <sys/mount.h>

#include "tests/support/parity_case.h"

namespace {

std::string content_at(const char* path) {
  const int fd = open(path, O_RDONLY);
  char text[64];
  const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
  if (fd >= 0) close(fd);
  return n < 0 ? "none" : std::string(text, static_cast<std::size_t>(n));
}

}  // namespace

PARITY(Mount, HidesFilesUntilItIsUnmounted) {
  t.dir("d");
  const char* const path = t.text("d/f", "below");
  const int before = CALL(open(path, O_RDONLY));
  t.line(content_at(path));
  if (CALL(mount("parity", t / "d", "tmpfs", 0, nullptr)) != 0) return;
  t.line(content_at(path));
  t.text("d/f", "above");
  t.line(content_at(path));
  t.line(content_at(path));
  char text[8];
  t.bytes("opened before the mount", text,
          static_cast<std::size_t>(CALL(read(before, text, sizeof text))));
  struct stat st {};
  CALL(fstat(before, &st));
  t.line("links " + std::to_string(st.st_nlink));
  CALL(umount(t / "d"));
  t.line(content_at(path));
  CALL(mount("parity", t / "d", "tmpfs", 0, nullptr));
  t.line(content_at(path));
  t.text("d/f", "again");
  t.line(content_at(path));
  t.line(content_at(path));
  CALL(umount2(t / "d", MNT_DETACH));
  t.line(content_at(path));
}

// Files that were cached by the real path must not be served any longer.
PARITY(Mount, ThroughALink) {
  t.dir("d");
  t.dir("d/e");
  t.link("l", "d");
  const char* const path = t.text("d/e/f", "below");
  for (const char* const way : {"l", "l/e", "l/e/."}) {
    t.line(content_at(path));
    if (CALL(mount("parity", t / way, "tmpfs", 0, nullptr)) != 0) return;
    t.line(content_at(path));
    CALL(umount(t / way));
    t.line(content_at(path));
  }
}

PARITY(Mount, BindsOneFileOverAnother) {
  const char* const a = t.text("a", "one");
  const char* const b = t.text("b", "other");
  t.line(content_at(a) + content_at(b));
  if (CALL(mount(b, a, nullptr, MS_BIND, nullptr)) != 0) return;
  t.line(content_at(a) + content_at(b));
  CALL(umount2(a, 0));
  t.line(content_at(a) + content_at(b));
}

// Uses functions that glibc 2.36 introduced.
PARITY(Mount, ByTheCallsThatTakeATree) {
  t.dir("d");
  t.dir("e");
  const char* const path = t.text("d/f", "below");
  t.text("e/f", "of another");
  t.line(content_at(path));
  const int tree = CALL(open_tree(AT_FDCWD, t / "e", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (tree < 0) return;
  CALL(move_mount(tree, "", AT_FDCWD, t / "d", MOVE_MOUNT_F_EMPTY_PATH));
  t.line(content_at(path));
  CALL(close(tree));
  struct ::mount_attr attributes {};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  CALL(mount_setattr(AT_FDCWD, t / "d", 0, &attributes, sizeof attributes));
  CALL(open(path, O_WRONLY));
  CALL(umount(t / "d"));
  t.line(content_at(path));
  const int picked = CALL(fspick(AT_FDCWD, t / "d", 0));
  if (picked >= 0) CALL(close(picked));
  const int context = CALL(fsopen("tmpfs", FSOPEN_CLOEXEC));
  CALL(fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0));
  const int mounted = CALL(fsmount(context, FSMOUNT_CLOEXEC, 0));
  CALL(move_mount(mounted, "", AT_FDCWD, t / "d", MOVE_MOUNT_F_EMPTY_PATH));
  t.line(content_at(path));
  CALL(close(mounted));
  CALL(close(context));
  CALL(umount(t / "d"));
  t.line(content_at(path));
}
