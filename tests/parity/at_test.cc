// Calls with a directory fd that refers to a served file: the call either concerns the file itself
// (AT_EMPTY_PATH, a null path) or fails with ENOTDIR. Also openat2 with its resolve flags, called
// by name and through syscall().
#include <dirent.h>
#include <dlfcn.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#include "tests/support/parity_case.h"

PARITY(At, EmptyPathMeansTheFdItself) {
  const char* const path = t.file("a", 300);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  const timespec times[2] = {{1000, 1}, {2000, 2}};
  struct stat st {};
  struct statx x {};
  char got[64];
  CALL(fstatat(fresh(), "", &st, AT_EMPTY_PATH));
  t.stat("fstatat", st, path);
  CALL(statx(fresh(), "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x));
  CALL(linkat(fresh(), "", AT_FDCWD, t / "linked", AT_EMPTY_PATH));
  CALL(stat(t / "linked", &st));
  t.stat("linked", st, path);
  CALL(fchownat(fresh(), "", 7, 8, AT_EMPTY_PATH));
  CALL(fchownat(fresh(), "", 7, 8, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW));
  CALL(stat(path, &st));
  t.stat("owned", st, path);
  CALL(utimensat(fresh(), "", times, AT_EMPTY_PATH));
  CALL(stat(path, &st));
  t.stat("dated", st, path);
  CALL(utimensat(fresh(), nullptr, times, 0));
  CALL(futimesat(fresh(), nullptr, nullptr));
  CALL(readlinkat(fresh(), "", got, sizeof got));
  CALL(faccessat(fresh(), "", R_OK, 0));
  CALL(faccessat(fresh(), "", R_OK, AT_EMPTY_PATH));
  CALL(faccessat(fresh(), "", X_OK, AT_EMPTY_PATH));
  CALL(syscall(SYS_faccessat2, fresh(), "", static_cast<long>(R_OK),
               static_cast<long>(AT_EMPTY_PATH)));
  CALL(syscall(452 /* fchmodat2 */, fresh(), "", 0640L, static_cast<long>(AT_EMPTY_PATH)));
  CALL(stat(path, &st));
  t.stat("moded", st, path);
  CALL(fchmodat(fresh(), "", 0644, 0));
  CALL(unlinkat(fresh(), "", 0));
  CALL(renameat(fresh(), "", AT_FDCWD, t / "renamed"));
  CALL(openat(fresh(), "", O_RDONLY));
  const int tree = CALL(static_cast<int>(syscall(
      SYS_open_tree, fresh(), "", static_cast<long>(AT_EMPTY_PATH | OPEN_TREE_CLOEXEC), 0L)));
  CALL(fstat(tree, &st));
  t.stat("open_tree", st, path);
}

// Makes each call with a fresh fd as the directory.
template <typename Fresh>
static void look_below(cube::parity::Case& t, const char* path, Fresh fresh) {
  struct stat st {};
  struct statx x {};
  char got[64];
  CALL(openat(fresh(), "b", O_RDONLY));
  CALL(openat(fresh(), ".", O_RDONLY));
  CALL(openat(fresh(), "..", O_RDONLY));
  CALL(openat(fresh(), "b", O_WRONLY | O_CREAT, 0644));
  CALL(fstatat(fresh(), "b", &st, 0));
  CALL(statx(fresh(), "b", 0, STATX_SIZE, &x));
  CALL(faccessat(fresh(), "b", F_OK, 0));
  CALL(readlinkat(fresh(), "b", got, sizeof got));
  CALL(cube::parity::function<ssize_t(int, const char*, char*, size_t, size_t)>("__readlinkat_chk")(
      fresh(), "b", got, 64, 64));
  CALL(unlinkat(fresh(), "b", 0));
  CALL(mkdirat(fresh(), "b", 0755));
  CALL(mknodat(fresh(), "b", S_IFIFO | 0644, 0));
  CALL(mkfifoat(fresh(), "b", 0644));
  CALL(symlinkat("x", fresh(), "b"));
  CALL(linkat(AT_FDCWD, path, fresh(), "b", 0));
  CALL(linkat(fresh(), "b", AT_FDCWD, t / "c", 0));
  CALL(renameat(fresh(), "b", AT_FDCWD, t / "c"));
  CALL(renameat2(AT_FDCWD, path, fresh(), "b", 0));
  CALL(fchmodat(fresh(), "b", 0644, 0));
  CALL(fchownat(fresh(), "b", 1, 1, 0));
  CALL(utimensat(fresh(), "b", nullptr, 0));
  CALL(futimesat(fresh(), "b", nullptr));
  CALL(scandirat(fresh(), "b", nullptr, nullptr, nullptr));
  union {
    struct file_handle handle;
    char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
  } handle{};
  int mount = 0;
  CALL(name_to_handle_at(fresh(), "b", &handle.handle, &mount, 0));
  CALL(fchdir(fresh()));
}

PARITY(At, FileIsRefusedAsADirectory) {
  const char* const path = t.file("a", 300);
  const auto fresh = [&] { return CALL(open(path, O_RDONLY)); };
  struct stat st {};
  look_below(t, path, fresh);
  EXPECT_EQ(errno, ENOTDIR);
  CALL(symlinkat("a", AT_FDCWD, t / "link"));
  CALL(close(CALL(open(t / "link", O_RDONLY))));
  // An absolute path does not depend on the fd.
  const int fd = CALL(openat(fresh(), path, O_RDONLY));
  t.expect_served(fd);
  CALL(fstatat(fresh(), path, &st, 0));
  t.stat("absolute", st, path);
}

// The library keeps the fd of a closed file, and must not pass it to the kernel.
PARITY(At, ClosedFdIsRefusedAsADirectory) {
  const char* const path = t.file("a", 300);
  look_below(t, path, [&] {
    const int fd = CALL(open(path, O_RDONLY));
    CALL(close(fd));
    return fd;
  });
  EXPECT_EQ(errno, EBADF);
}

PARITY(At, PathsOfFdsAreFollowed) {
  const char* const path = t.file("a", 300);
  const auto name = [&] { return "/proc/self/fd/" + std::to_string(CALL(open(path, O_RDONLY))); };
  struct statfs fs {};
  struct statfs64 fs64 {};
  struct statvfs vfs {};
  struct stat st {};
  char value[64] = {};
  CALL(setxattr(path, "user.tag", "one", 3, 0));
  CALL(statfs(name().c_str(), &fs));
  t.line("type " + std::to_string(fs.f_type));
  CALL(statfs64(name().c_str(), &fs64));
  t.line("type " + std::to_string(fs64.f_type));
  CALL(statvfs(name().c_str(), &vfs));
  t.line("namemax " + std::to_string(vfs.f_namemax));
  struct statvfs64 vfs64 {};
  CALL(statvfs64(name().c_str(), &vfs64));
  t.line("namemax " + std::to_string(vfs64.f_namemax));
  CALL(pathconf(name().c_str(), _PC_LINK_MAX));
  CALL(getxattr(name().c_str(), "user.tag", value, sizeof value));
  CALL(listxattr(name().c_str(), value, sizeof value));
  CALL(setxattr(name().c_str(), "user.more", "x", 1, 0));
  CALL(removexattr(name().c_str(), "user.more"));
  CALL(lgetxattr(name().c_str(), "user.tag", value, sizeof value));
  CALL(chmod(name().c_str(), 0600));
  CALL(chown(name().c_str(), 3, 3));
  CALL(utimensat(AT_FDCWD, name().c_str(), nullptr, 0));
  CALL(lstat(name().c_str(), &st));
  CALL(link(name().c_str(), t / "hard"));
  CALL(linkat(AT_FDCWD, name().c_str(), AT_FDCWD, t / "hard2", AT_SYMLINK_FOLLOW));
  CALL(access(t / "hard2", F_OK));
  CALL(chdir(name().c_str()));
  CALL(opendir(name().c_str()));
  CALL(truncate(name().c_str(), 200));
  CALL(stat(path, &st));
  t.stat("after all", st, path);
  CALL(mkdir(name().c_str(), 0755));
  CALL(unlink(name().c_str()));
}

PARITY(At, ExtendedAttributesMoveTheChangeTime) {
  const char* const path = t.file("a", 300);
  t.link("l", "a");
  struct stat st {};
  char value[64] = {};
  const auto look = [&](const char* what) {
    CALL(stat(path, &st));
    t.stat(what, st, path);
    const int fd = CALL(open(path, O_RDONLY));
    CALL(fstat(fd, &st));
    t.stat(what, st, path);
    CALL(close(fd));
  };
  CALL(close(CALL(open(path, O_RDONLY))));
  look("before");
  CALL(setxattr(path, "user.a", "1", 1, 0));
  look("setxattr");
  CALL(lsetxattr(path, "user.b", "1", 1, XATTR_CREATE));
  look("lsetxattr");
  CALL(setxattr(t / "l", "user.c", "1", 1, 0));
  look("setxattr by a link");
  CALL(removexattr(path, "user.a"));
  look("removexattr");
  CALL(lremovexattr(path, "user.b"));
  look("lremovexattr");
  CALL(removexattr(t / "l", "user.c"));
  look("removexattr by a link");
  CALL(setxattr(path, "user.a", "1", 1, XATTR_REPLACE));
  CALL(getxattr(path, "user.a", value, sizeof value));
  CALL(setxattr(t / "none", "user.a", "1", 1, 0));
  const int fd = CALL(open(path, O_RDONLY));
  CALL(fsetxattr(fd, "user.d", "1", 1, 0));
  look("fsetxattr");
  CALL(fremovexattr(fd, "user.d"));
  look("fremovexattr");
  CALL(fremovexattr(fd, "user.d"));
}

namespace {

// glibc has had openat2() since 2.43; the library always has it.
void open_by_openat2(cube::parity::Case& t, bool is_by_name) {
  using Openat2 = int(int, const char*, const open_how*, std::size_t);
  auto* const named =
      is_by_name ? reinterpret_cast<Openat2*>(dlsym(RTLD_DEFAULT, "openat2")) : nullptr;
  t.dir("d");
  t.dir("d/e");
  t.file("d/a", 300);
  t.file("top", 300);
  t.link("d/l", "a");
  t.link("d/up", "../top");
  t.link("d/absolute", t / "top");
  const int dir = CALL(open(t / "d", O_RDONLY | O_DIRECTORY));
  const auto open2 = [&](int from, const char* path, std::uint64_t flags, std::uint64_t resolve,
                         std::size_t size = sizeof(open_how)) {
    open_how how{};
    how.flags = flags;
    how.resolve = resolve;
    int fd = -1;
    // EAGAIN: something was renamed or mounted during the call, anywhere on the machine.
    do {
      errno = cube::parity::k_errno_kept;
      fd = named != nullptr
               ? named(from, path, &how, size)
               : static_cast<int>(syscall(SYS_openat2, static_cast<long>(from), path, &how, size));
    } while (fd < 0 && errno == EAGAIN);
    return fd;
  };
  const auto look = [&](int fd) {
    char got[8] = {};
    CALL(read(fd, got, 8));
    t.bytes("got", got, 8);
    if (fd >= 0) CALL(close(fd));
  };
  for (const char* name : {"a", "l", "up", "absolute", "e/../a", "../top", "/", "."}) {
    for (const std::uint64_t resolve :
         {0UL, std::uint64_t{RESOLVE_BENEATH}, std::uint64_t{RESOLVE_IN_ROOT},
          std::uint64_t{RESOLVE_NO_SYMLINKS}, std::uint64_t{RESOLVE_NO_MAGICLINKS},
          std::uint64_t{RESOLVE_NO_XDEV}, std::uint64_t{RESOLVE_CACHED}}) {
      // Only the kernel decides whether a name is in its cache.
      if (resolve == RESOLVE_CACHED && open2(dir, name, O_RDONLY, 0) < 0) continue;
      t.line(std::string(name) + " " + std::to_string(resolve));
      if (resolve != RESOLVE_CACHED) look(CALL(open2(dir, name, O_RDONLY, resolve)));
    }
  }
  CALL(open2(dir, "a", O_RDONLY, 0x10000));
  CALL(open2(dir, "a", 1ULL << 40, 0));
  CALL(open2(dir, "a", O_RDONLY, 0, 8));
  CALL(open2(dir, "a", O_RDONLY, 0, 4096));
  CALL(open2(-1, "a", O_RDONLY, 0));
  CALL(open2(dir, nullptr, O_RDONLY, 0));
  look(CALL(open2(-1, t / "top", O_RDONLY | O_CLOEXEC, 0)));
  const int writer = CALL(open2(dir, "a", O_RDWR | O_TRUNC, 0));
  CALL(write(writer, "written by openat2", 18));
  CALL(close(writer));
  look(CALL(open(t / "d/a", O_RDONLY)));
  const int served = CALL(open(t / "top", O_RDONLY));
  look(CALL(open2(served, "x", O_RDONLY, 0)));
  const int creator = CALL(open2(dir, "new", O_WRONLY | O_CREAT, 0));
  CALL(write(creator, "new", 3));
  CALL(close(creator));
  look(CALL(open(t / "d/new", O_RDONLY)));
}

}  // namespace

PARITY(At, Openat2ByCallNumber) { open_by_openat2(t, false); }
PARITY(At, Openat2ByName) { open_by_openat2(t, true); }

// The kernel shows the path at which a directory was opened, but that path may now belong to
// another directory.
PARITY(At, ARemovedDirectoryIsNotTheOneOfThatName) {
  t.dir("d (deleted)");
  t.file("d (deleted)/a", 100);
  CALL(close(CALL(open(t / "d (deleted)/a", O_RDONLY))));
  t.dir("d");
  const int dir = CALL(open(t / "d", O_RDONLY | O_DIRECTORY));
  CALL(rmdir(t / "d"));
  struct stat st {};
  struct statx x {};
  CALL(openat(dir, "a", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  CALL(fstatat(dir, "a", &st, 0));
  CALL(statx(dir, "a", 0, STATX_BASIC_STATS, &x));
  CALL(faccessat(dir, "a", R_OK, 0));
  CALL(openat(dir, "../d (deleted)/a", O_RDONLY));
  char before[PATH_MAX];
  if (getcwd(before, sizeof before) == nullptr) return;
  CALL(fchdir(dir));
  CALL(open("a", O_RDONLY));
  EXPECT_EQ(errno, ENOENT);
  CALL(stat("a", &st));
  CALL(chdir(before));
  CALL(close(dir));
}

PARITY(At, ADirectoryThatAMountCoversIsNotWhatIsMounted) {
  t.dir("below");
  t.dir("above");
  t.text("above/a", "from above");
  t.text("below/a", "from below");
  const int dir = CALL(open(t / "below", O_RDONLY | O_DIRECTORY));
  CALL(close(CALL(openat(dir, "a", O_RDONLY))));
  char before[PATH_MAX];
  // Needs a privilege.
  if (getcwd(before, sizeof before) == nullptr ||
      mount(t / "above", t / "below", nullptr, MS_BIND, nullptr) != 0)
    return;
  char got[16] = {};
  const int by_path = CALL(open(t / "below/a", O_RDONLY));
  CALL(read(by_path, got, 16));
  t.bytes("by path", got, 16);
  const int by_dir = CALL(openat(dir, "a", O_RDONLY));
  CALL(read(by_dir, got, 16));
  t.bytes("by directory", got, 16);
  CALL(fchdir(dir));
  const int by_cwd = CALL(open("a", O_RDONLY));
  CALL(read(by_cwd, got, 16));
  t.bytes("by working directory", got, 16);
  const int up = CALL(open("../below/a", O_RDONLY));
  CALL(read(up, got, 16));
  t.bytes("up and down again", got, 16);
  CALL(chdir(before));
  for (const int fd : {by_path, by_dir, by_cwd, up, dir}) CALL(close(fd));
  umount2(t / "below", MNT_DETACH);
}
