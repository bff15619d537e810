#include "shim/calls/directory/empty_directory.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <atomic>
#include <cerrno>
#include <climits>

#include "cache/base/process/aside.h"
#include "cache/base/sys.h"
#include "shim/fd/fd_table.h"
#include "shim/process/process.h"

namespace cube::shim::empty_directory {
namespace {

namespace sys = base::sys;

// The fd handed out last: a new one is opened through it if it still is such a directory.
constinit std::atomic<int> g_model{-1};
constinit std::atomic<std::uint32_t> g_made{0};

// Makes one directory within another and removes both at once, so that ".." leads nowhere, either.
long make(int flags) {
  base::Aside room;
  if (!room) return -ENOMEM;
  char *const outer = room.data(), *const inner = outer + PATH_MAX;
  const auto& place = process::config().ram_dir;
  if (place.size() + 80 > PATH_MAX) return -ENAMETOOLONG;
  *fmt::format_to_n(outer, PATH_MAX - 1, "{}/cubeshim-empty-{}-{}", place, sys::getpid(),
                    g_made.fetch_add(1))
       .out = '\0';
  *fmt::format_to_n(inner, PATH_MAX - 1, "{}/empty", outer).out = '\0';
  constexpr long k_mode = 0700;
  if (const long made = sys::raw(SYS_mkdirat, AT_FDCWD, sys::arg(outer), k_mode); sys::failed(made))
    return made;
  long fd = sys::raw(SYS_mkdirat, AT_FDCWD, sys::arg(inner), k_mode);
  if (!sys::failed(fd)) fd = sys::open(inner, flags);
  sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(inner), AT_REMOVEDIR);
  sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(outer), AT_REMOVEDIR);
  return fd;
}

// Holds an fd of such a directory, which the program has open. The fd stays what it is meanwhile.
OpenFileRef hold(int fd) {
  const RowKind kind = g_fds.kind(fd);
  const bool is_one = kind == RowKind::served_directory || kind == RowKind::listed_directory;
  return is_one ? g_fds.acquire_kind(fd, kind) : OpenFileRef();
}

}  // namespace

long open(int flags) {
  constexpr int k_kept =
      O_CLOEXEC | O_NONBLOCK | O_PATH | O_NOFOLLOW | O_DIRECTORY | O_APPEND | O_SYNC;
  flags = (flags & k_kept) | O_RDONLY;
  const int model = g_model.load(std::memory_order_relaxed);
  const OpenFileRef held = hold(model);
  long fd = held ? sys::openat(model, ".", flags) : -EBADF;
  // The origin's own directory may have taken the place of the fd (listed_directory::hold_all),
  // which marks the file before that.
  if (!sys::failed(fd) && !held->is_placeholder()) {
    sys::close(static_cast<int>(fd));
    fd = -EBADF;
  }
  if (sys::failed(fd) && fd != -EMFILE && fd != -ENFILE) fd = make(flags);
  if (!sys::failed(fd)) g_model.store(static_cast<int>(fd), std::memory_order_relaxed);
  return fd;
}

}  // namespace cube::shim::empty_directory
