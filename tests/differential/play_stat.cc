// Queries about files: stat in all its forms, names, and the other queries that an fd answers.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "cache/base/sys.h"
#include "tests/differential/player.h"

namespace cube::differ {
namespace {

namespace sys = base::sys;

bool is_same(const struct ::stat& a, const struct ::stat& b) {
  return a.st_ino == b.st_ino && a.st_size == b.st_size && a.st_nlink == b.st_nlink &&
         a.st_mode == b.st_mode && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec && a.st_ctim.tv_sec == b.st_ctim.tv_sec &&
         a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

// Compares the stat of a path in a pack with the stat of its source. The path must not lead to the
// root through a link, because the source is not there.
const char* compared_with_source(const Player& p, const struct ::stat& st, std::string path,
                                 int flags) {
  struct ::stat source {};
  if (!path.starts_with(p.tree().root)) return "";
  // An object has its own inode and change time.
  if (is_bucket()) return "";
  // A path in the pack must not name a copy.
  if (p.is_copy(st.st_mode, st.st_dev)) return "of no pack";
  path.replace(0, p.tree().root.size(), p.tree().source);
  const bool is_known = !sys::failed(sys::fstatat(AT_FDCWD, path.c_str(), &source, flags));
  return !is_known || is_same(st, source) ? "as it was packed" : "not as it was packed";
}

// Compares the stat, including the change time, with the kernel's current stat of the path.
const char* compared(const Player& p, const struct ::stat& st, int dir, const std::string& path,
                     int flags) {
  struct ::stat kernel {};
  if (p.tree().is_packed()) return compared_with_source(p, st, path, flags);
  if (sys::failed(sys::fstatat(dir, path.c_str(), &kernel, flags)))
    return "but the kernel has none";
  return is_same(kernel, st) && kernel.st_dev == st.st_dev ? "as the kernel's"
                                                           : "not as the kernel's";
}

void say_stat(Player& p, const std::string& what, const Result& r, const struct ::stat& st, int dir,
              const std::string& path, int flags) {
  if (r.failed()) return p.say("{} = {}", what, r.text());
  p.say("{} = {} {} {}", what, r.text(), p.show(st), compared(p, st, dir, path, flags));
}

constexpr unsigned k_masks[] = {
    STATX_BASIC_STATS, STATX_BASIC_STATS | STATX_BTIME, STATX_SIZE, STATX_MTIME, 0,
    STATX_ALL,         STATX_TYPE | STATX_MODE,         STATX_INO,  STATX_MODE,  STATX_BTIME,
    STATX_NLINK,       STATX_MTIME | STATX_CTIME};

// Shows only the requested fields. A kernel can report more fields than were requested (btrfs
// reports the time of birth), and does not always ask the server for these fields (FUSE).
std::string show(Player& p, unsigned asked, const struct ::statx& x) {
  const bool is_file = S_ISREG(x.stx_mode) || S_ISDIR(x.stx_mode) || S_ISLNK(x.stx_mode);
  struct ::stat root {};
  sys::fstatat(AT_FDCWD, p.tree().root.c_str(), &root, 0);
  // The kernel cannot report a pack's device.
  const dev_t device =
      p.tree().is_packed() ? gnu_dev_makedev(x.stx_dev_major, x.stx_dev_minor) : root.st_dev;
  const bool is_unlike = p.is_copy(x.stx_mode, device), is_object = p.is_of_bucket(device),
             is_listed = is_object && S_ISDIR(x.stx_mode);
  // A store keeps no time of birth.
  const unsigned told = x.stx_mask & asked & (is_bucket() ? ~STATX_BTIME : ~0U);
  const std::string attributes =
      is_unlike || is_object ? "?"
                             : fmt::format("{:x}/{:x}", x.stx_attributes, x.stx_attributes_mask);
  std::string text = fmt::format("mask {:x} attributes {} {}", told, attributes, x.stx_blksize);
  if ((told & (STATX_TYPE | STATX_MODE)) != 0) text += fmt::format(" mode {:o}", x.stx_mode);
  if ((told & STATX_NLINK) != 0)
    text += is_unlike || is_listed ? " links ?" : fmt::format(" links {}", x.stx_nlink);
  if ((told & (STATX_UID | STATX_GID)) != 0)
    text += fmt::format(" owner {}:{}", x.stx_uid, x.stx_gid);
  if ((told & STATX_SIZE) != 0) text += is_listed ? " size ?" : fmt::format(" size {}", x.stx_size);
  if ((told & STATX_BLOCKS) != 0)
    text += " blocks " +
            (is_unlike || is_object ? "?" : p.show_blocks(x.stx_ino, x.stx_blocks, x.stx_size));
  if (is_file && (told & STATX_INO) != 0) text += " " + p.show_inode(x.stx_mode, device, x.stx_ino);
  if (is_file && (told & STATX_MTIME) != 0)
    text += " " + p.show(timespec{x.stx_mtime.tv_sec, x.stx_mtime.tv_nsec});
  // The value differs from tree to tree.
  if (is_file && (told & STATX_BTIME) != 0)
    text += x.stx_btime.tv_sec > k_newest_age ? " born" : " born long ago";
  return text;
}

}  // namespace

DIFFER_PLAY(fstat) {
  const int fd = p.fd(a[0]);
  struct ::stat st {};
  const Result r = p.call([&] { return fstat(fd, &st); });
  p.say("fstat({}) = {} {}", fd, r.text(), r.failed() ? "" : p.show(st));
}

DIFFER_PLAY(raw_stat) {
  const int fd = p.fd(a[0]);
  struct ::stat st {};
  const Result r = p.call([&] {
    return a[1] % 2 == 0 ? syscall(SYS_fstat, fd, &st)
                         : syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH);
  });
  p.say("syscall fstat({}, {}) = {} {}", fd, a[1] % 2, r.text(), r.failed() ? "" : p.show(st));
}

DIFFER_PLAY(stat) {
  const std::string path = p.path(a[0], a[1]);
  struct ::stat st {};
  const Result r = p.call([&] { return stat(path.c_str(), &st); });
  say_stat(p, "stat(" + p.show(path) + ")", r, st, AT_FDCWD, path, 0);
}

DIFFER_PLAY(lstat) {
  const std::string path = p.path(a[0], a[1]);
  struct ::stat st {};
  const Result r = p.call([&] { return lstat(path.c_str(), &st); });
  say_stat(p, "lstat(" + p.show(path) + ")", r, st, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW);
}

DIFFER_PLAY(fstatat) {
  constexpr int flags[] = {
      0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, 0x4, AT_EMPTY_PATH, 0};
  const int dir = a[3] == 7 ? AT_FDCWD : p.fd(a[0]), flag = flags[a[3] % 8];
  std::string path = p.path(a[1], a[2]);
  if ((flag & AT_EMPTY_PATH) != 0 && a[2] % 4 != 3) path.clear();
  struct ::stat st {};
  const Result r = p.call([&] { return fstatat(dir, path.c_str(), &st, flag); });
  const std::string what = fmt::format("fstatat({}, \"{}\", {})", dir, p.show(path), flag);
  if (path.empty()) return p.say("{} = {} {}", what, r.text(), r.failed() ? "" : p.show(st));
  say_stat(p, what, r, st, dir, path, flag & AT_SYMLINK_NOFOLLOW);
}

DIFFER_PLAY(statx) {
  const std::string path = p.path(a[0], a[1]);
  const unsigned mask = k_masks[static_cast<std::size_t>(a[2]) % std::size(k_masks)];
  const int flags = a[2] % 3 == 0 ? AT_SYMLINK_NOFOLLOW : 0;
  struct ::statx x {};
  const Result r = p.call([&] { return statx(AT_FDCWD, path.c_str(), flags, mask, &x); });
  p.say("statx({}, {}, {:x}) = {} {}", p.show(path), flags, mask, r.text(),
        r.failed() ? "" : show(p, mask, x));
}

DIFFER_PLAY(statx_fd) {
  const int fd = p.fd(a[0]);
  const unsigned mask = k_masks[static_cast<std::size_t>(a[1]) % std::size(k_masks)];
  struct ::statx x {};
  const Result r = p.call([&] {
    return statx(fd, "", AT_EMPTY_PATH | (a[1] % 5 == 0 ? AT_STATX_FORCE_SYNC : 0), mask, &x);
  });
  p.say("statx({}, {:x}) = {} {}", fd, mask, r.text(), r.failed() ? "" : show(p, mask, x));
}

DIFFER_PLAY(access) {
  const std::string path = p.path(a[0], a[1]);
  constexpr int modes[] = {F_OK, R_OK, R_OK, W_OK, X_OK, R_OK | W_OK, 64, R_OK};
  const int mode = modes[a[2] % 8];
  const Result r = p.call([&] {
    if (a[2] == 7) return faccessat(AT_FDCWD, path.c_str(), mode, AT_EACCESS);
    return a[2] == 2 ? euidaccess(path.c_str(), mode) : access(path.c_str(), mode);
  });
  p.say("access({}, {}) = {}", p.show(path), mode, r.text());
}

DIFFER_PLAY(readlink) {
  const std::string path = p.path(a[0], a[1]);
  std::string to(500, '\0');
  const Result r = p.call([&] { return readlink(path.c_str(), to.data(), to.size()); });
  to.resize(r.failed() ? 0 : static_cast<std::size_t>(r.value));
  p.say("readlink({}) = {} {}", p.show(path), r.text(), p.show(to));
}

DIFFER_PLAY(realpath) {
  const std::string path = p.path(a[0], a[1]);
  errno = 0;
  char* const found = realpath(path.c_str(), nullptr);
  p.say("realpath({}) = {}", p.show(path), found == nullptr ? error_name(errno) : p.show(found));
  free(found);
}

DIFFER_PLAY(fd_link) {
  std::string to(500, '\0');
  const std::string path = fmt::format("/proc/self/fd/{}", p.fd(a[0]));
  const Result r = p.call([&] { return readlink(path.c_str(), to.data(), to.size()); });
  to.resize(r.failed() ? 0 : static_cast<std::size_t>(r.value));
  // Cuts off the inode number that follows the kind of a pipe, a socket or an unnamed file.
  for (const char* const cut : {":[", "/#"}) to = to.substr(0, to.find(cut));
  p.say("readlink({}) = {} {}", path, r.failed() ? r.text() : "", p.show(to));
}

DIFFER_PLAY(fd_meta) {
  const int fd = p.fd(a[0]);
  struct ::statfs fs {};
  struct ::statvfs vfs {};
  char value[64];
  long shown = 0;
  // A pack is a separate file system without extended attributes.
  if (p.tree().is_packed() && (a[1] % 8 == 2 || a[1] % 8 == 3 || a[1] % 8 == 4)) return;
  const Result r = p.call([&]() -> long {
    switch (a[1] % 8) {
      case 0: return fsync(fd);
      case 1: return fdatasync(fd);
      case 2: return fstatfs(fd, &fs);
      case 3: return fstatvfs(fd, &vfs);
      case 4: return fgetxattr(fd, "user.none", value, sizeof value);
      case 5: return fpathconf(fd, _PC_NAME_MAX);
      case 6: return flistxattr(fd, value, sizeof value);
      default: return isatty(fd) - 1;
    }
  });
  if (!r.failed())
    shown = a[1] % 8 == 2 ? static_cast<long>(fs.f_type) : static_cast<long>(vfs.f_namemax);
  p.say("question {} of {} = {} {:x}", a[1] % 8, fd, r.text(), shown);
}

DIFFER_PLAY(ioctl) {
  const int fd = p.fd(a[0]);
  constexpr unsigned long requests[] = {TCGETS,   FIONREAD,   FIOCLEX,         FIONCLEX,
                                        FIGETBSZ, TIOCGWINSZ, FS_IOC_GETFLAGS, 0xabcd};
  const unsigned long request = requests[a[1] % 8];
  alignas(8) char out[256] = {};
  // A copy has the flags of a file on tmpfs.
  if (p.tree().is_packed() && request == FS_IOC_GETFLAGS) return;
  const Result r = p.call([&] { return ioctl(fd, request, out); });
  p.say("ioctl({}, {:x}) = {} {:016x}", fd, request, r.text(), hash_of(out, sizeof out));
}

}  // namespace cube::differ
