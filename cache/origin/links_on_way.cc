#include "cache/origin/links_on_way.h"

#include <fcntl.h>
#include <linux/openat2.h>

#include <atomic>
#include <cerrno>
#include <climits>

#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// Only these flags are passed to openat2. It refuses unknown flags, which openat ignores.
constexpr int k_openat2_flags = O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_NOFOLLOW | O_NOCTTY |
                                O_CLOEXEC | O_DIRECTORY | O_DIRECT | O_NOATIME | O_ASYNC | O_PATH;

constinit std::atomic<bool> g_has_openat2{true};

// Fails with ELOOP if a component is a symbolic link of the kind that `resolve` excludes.
long open_without(std::uint64_t resolve, const char* path, int flags) {
  struct ::open_how how {};
  how.flags = static_cast<std::uint64_t>(flags & k_openat2_flags);
  how.resolve = resolve;
  return sys::raw(SYS_openat2, AT_FDCWD, sys::arg(path), sys::arg(&how), sizeof how);
}

// Whether a sandbox that does not know the call may have returned this error. The error may also
// concern only this file.
bool may_be_refused(long error) { return error == -ENOSYS || error == -EPERM || error == -EACCES; }

}  // namespace

long open_noting_links(const char* path, int flags, LinksOnWay& links) {
  links = LinksOnWay::unknown;
  if (!g_has_openat2.load(std::memory_order_relaxed)) return sys::open(path, flags);
  long fd = open_without(RESOLVE_NO_SYMLINKS, path, flags);
  if (fd == -ELOOP) {
    fd = open_without(RESOLVE_NO_MAGICLINKS, path, flags);
    links = fd != -ELOOP ? LinksOnWay::some : LinksOnWay::magic;
    return fd != -ELOOP ? fd : sys::open(path, flags);
  }
  if (!may_be_refused(fd)) {
    links = LinksOnWay::none;
    return fd;
  }
  fd = sys::open(path, flags);
  if (!sys::failed(fd)) g_has_openat2.store(false, std::memory_order_relaxed);
  return fd;
}

bool has_path(int fd, std::string_view absolute_path) {
  const base::ProcFdName link(fd, base::ProcFdName::Table::thread);
  char target[PATH_MAX];
  const long n = sys::readlink(link.c_str(), target, sizeof target);
  return !sys::failed(n) && std::string_view(target, static_cast<std::size_t>(n)) == absolute_path;
}

}  // namespace cube::cache
