#include "shim/path/startup_directory.h"

#include <linux/openat2.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "cache/base/path.h"
#include "cache/base/process/mount_table.h"
#include "cache/base/sys.h"
#include "cache/base/unique_fd.h"
#include "cache/base/words.h"
#include "shim/path/path_of_fd.h"

namespace cube::shim::startup_directory {
namespace {

// RESOLVE_CACHED of Linux 5.12; older kernels refuse it (EINVAL).
constexpr std::uint64_t k_resolve_cached = 0x20;

namespace sys = base::sys;

// These file systems have neither a device nor a server. Other file systems without a device may
// have a server.
constexpr std::string_view k_local_kinds[] = {"tmpfs", "overlay", "btrfs",
                                              "zfs",   "ramfs",   "devtmpfs"};

// Converts escapes such as "\040" (a space) in place, and adds a null.
std::size_t unescape(char* text, std::size_t n) {
  std::size_t out = 0;
  const auto digit = [&](std::size_t at) {
    return at < n && text[at] >= '0' && text[at] <= '7' ? text[at] - '0' : -1;
  };
  for (std::size_t i = 0; i < n; ++i) {
    const bool is_octal =
        text[i] == '\\' && digit(i + 1) >= 0 && digit(i + 2) >= 0 && digit(i + 3) >= 0;
    text[out++] =
        is_octal ? static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3)) : text[i];
    if (is_octal) i += 3;
  }
  text[out] = '\0';
  return out;
}

// The mount points along a path, found by comparisons of text.
struct Way {
  bool is_local = true;
  std::size_t mount_length = 0;  // the length of the path's last mount point; 0: none
};

// Evaluates one line of the table of mounts.
void take_line(std::string_view line, std::string_view path, Way& way) {
  base::take_word(line);
  base::take_word(line);
  const std::string_view device = base::take_word(line);
  base::take_word(line);
  char point[4096];
  const std::string_view escaped = base::take_word(line);
  if (escaped.empty() || escaped.size() >= sizeof point) {
    way.is_local = false;
    return;
  }
  std::memcpy(point, escaped.data(), escaped.size());
  const std::string_view mount(point, unescape(point, escaped.size()));
  if (!base::is_at_or_below(path, mount)) return;
  way.mount_length = std::max(way.mount_length, mount.size());
  if (!device.starts_with("0:")) return;
  const std::size_t dash = line.find(" - ");
  std::string_view rest =
      dash == std::string_view::npos ? std::string_view() : line.substr(dash + 3);
  const std::string_view kind = base::take_word(rest);
  if (std::find(std::begin(k_local_kinds), std::end(k_local_kinds), kind) ==
      std::end(k_local_kinds))
    way.is_local = false;
}

Way way_to(std::string_view path) {
  Way way;
  const bool is_whole =
      base::for_each_mount([&](std::string_view line) { take_line(line, path, way); });
  way.is_local = way.is_local && is_whole;
  return way;
}

long open_by_how(int dir, const char* path, std::uint64_t flags, std::uint64_t resolve) {
  struct ::open_how how {};
  how.flags = flags | O_PATH | O_CLOEXEC;
  how.resolve = resolve;
  return sys::raw(SYS_openat2, dir, sys::arg(path), sys::arg(&how), sizeof how);
}

// Opens a path, which must not contain "." or "..", with O_PATH if all file systems along the path
// are local. Returns -EREMOTE if the path lies on a file system of a server, and -EXDEV if a link
// leads to another file system.
long open_local(const char* path) {
  const Way way = way_to(path);
  if (!way.is_local || way.mount_length == 0) return -EREMOTE;
  char point[4096];
  if (way.mount_length >= sizeof point) return -EREMOTE;
  std::memcpy(point, path, way.mount_length);
  point[way.mount_length] = '\0';
  const long mount = sys::open(point, O_PATH | O_CLOEXEC);
  const char* rest = path + way.mount_length;
  while (*rest == '/') ++rest;
  if (sys::failed(mount) || *rest == '\0') return mount;
  const base::UniqueFd top(static_cast<int>(mount));
  // A link may lead to another file system.
  const long fd = open_by_how(top.get(), rest, 0, RESOLVE_NO_XDEV);
  // These errors mean that the kernel is older than 5.6, or that a filter refuses openat2.
  return fd == -ENOSYS || fd == -EPERM || fd == -EACCES
             ? sys::openat(top.get(), rest, O_PATH | O_CLOEXEC)
             : fd;
}

// Like open_local, but only for a directory on the root's file system whose path components the
// kernel has cached. The path must not enter another mount, because the kernel may ask the server
// for the root of a mount (NFS) even if the root is cached.
long open_on_root(const char* path) {
  return open_by_how(AT_FDCWD, path, O_DIRECTORY, k_resolve_cached | RESOLVE_NO_XDEV);
}

int error_of(int fd) {
  struct ::stat st {};
  const long error = sys::fstat(fd, &st);
  if (sys::failed(error)) return static_cast<int>(-error);
  return S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
}

}  // namespace

DirectoryLook look_at(const std::string& path) {
  DirectoryLook look{.path = path};
  long opened = open_on_root(path.c_str());
  const bool is_directory = !sys::failed(opened);
  if (!is_directory) opened = open_local(path.c_str());
  if (sys::failed(opened)) {
    look.place = opened == -EREMOTE ? DirectoryLook::Place::on_a_server
                 : opened == -EXDEV ? DirectoryLook::Place::behind_a_link
                                    : DirectoryLook::Place::real;
    if (look.place == DirectoryLook::Place::real) look.error = static_cast<int>(-opened);
    return look;
  }
  const base::UniqueFd fd(static_cast<int>(opened));
  if (!is_directory) look.error = error_of(fd.get());
  char real[PATH_MAX];
  if (const std::string_view found = path_of_fd(fd.get(), real); !found.empty()) look.path = found;
  return look;
}

long open_known(const char* path) {
  return open_by_how(AT_FDCWD, path, O_DIRECTORY, k_resolve_cached);
}

}  // namespace cube::shim::startup_directory
