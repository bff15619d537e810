#include "shim/calls/directory/unmounted_directory.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include "cache/base/memory/off_stack.h"
#include "cache/base/sys.h"
#include "shim/calls/new_fds.h"
#include "shim/calls/temporary_name.h"
#include "shim/process/process.h"
#include "shim/process/user_pointer.h"

namespace cube::shim::unmounted_directory {
namespace {

namespace sys = base::sys;

// The fd that was returned last. If this fd still refers to an empty directory, the next empty
// directory is opened through it.
constinit std::atomic<int> g_model{-1};

// Makes a directory within another, opens the inner directory, and removes both, so that ".." also
// leads nowhere.
long make(int flags) {
  base::OffStack room;
  if (!room) return -ENOMEM;
  char *const outer = room.data(), *const inner = outer + PATH_MAX;
  constexpr long k_mode = 0700;
  const long made = make_temporary(
      outer, "empty", [=] { return sys::raw(SYS_mkdirat, AT_FDCWD, sys::arg(outer), k_mode); });
  if (sys::failed(made)) return made;
  *fmt::format_to_n(inner, PATH_MAX - 1, "{}/empty", outer).out = '\0';
  long fd = sys::raw(SYS_mkdirat, AT_FDCWD, sys::arg(inner), k_mode);
  if (!sys::failed(fd)) fd = sys::open(inner, flags);
  sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(inner), AT_REMOVEDIR);
  sys::raw(SYS_unlinkat, AT_FDCWD, sys::arg(outer), AT_REMOVEDIR);
  return fd;
}

// Returns a reference to the open directory of the fd, or an empty reference. While the reference
// exists, the OpenFile is not reused.
OpenFileRef hold(int fd) {
  const RowKind kind = g_fds.kind(fd);
  const bool is_one = kind == RowKind::unmounted_directory || kind == RowKind::mount_stream;
  return is_one ? g_fds.acquire_kind(fd, kind) : OpenFileRef();
}

// Returns an fd for a directory whose entries this process answers, or -errno. The fd refers to an
// empty directory that no path leads to. Accepts the flags of open(2) that apply to a directory.
long open_empty(int flags) {
  constexpr int k_kept =
      O_CLOEXEC | O_NONBLOCK | O_PATH | O_NOFOLLOW | O_DIRECTORY | O_APPEND | O_SYNC;
  flags = (flags & k_kept) | O_RDONLY;
  const int model = g_model.load(std::memory_order_relaxed);
  const OpenFileRef held = hold(model);
  long fd = held ? sys::openat(model, ".", flags) : -EBADF;
  // The origin's own directory may have replaced the empty directory. mount_stream::hold_all marks
  // the file before it replaces the fd.
  if (!sys::failed(fd) && !held->is_placeholder()) {
    sys::close(static_cast<int>(fd));
    fd = -EBADF;
  }
  if (sys::failed(fd) && fd != -EMFILE && fd != -ENFILE) fd = make(flags);
  if (!sys::failed(fd)) g_model.store(static_cast<int>(fd), std::memory_order_relaxed);
  return fd;
}

}  // namespace

int serve(cache::Listing* listing, RowKind kind, int flags) {
  expect_new_fd();
  OpenFileRef file = open_files::make();
  long fd = file ? open_empty(flags) : -ENFILE;
  if (fd >= 0 && (!g_fds.is_within(static_cast<int>(fd)) ||
                  (kind == RowKind::mount_stream && fd <= STDERR_FILENO))) {
    sys::close(static_cast<int>(fd));
    fd = -EMFILE;
  }
  if (fd < 0) {
    listing->release();
    return static_cast<int>(fd);
  }
  const int new_fd = static_cast<int>(fd);
  g_fds.forget(new_fd);
  file->kind = OpenFile::Kind::directory;
  file->directory = listing;
  file->size = listing->end();
  file->flags = flags;
  g_fds.set(new_fd, kind, std::move(file), (flags & O_CLOEXEC) != 0);
  return new_fd;
}

int open(const cache::Metadata& metadata, std::string_view key, int flags) {
  const bool with_names = (flags & O_PATH) == 0;
  const auto follow =
      (flags & O_NOFOLLOW) == 0 ? cache::Metadata::Follow::last : cache::Metadata::Follow::nothing;
  const auto opened = metadata.list(key, follow, with_names);
  return opened ? serve(*opened, RowKind::unmounted_directory, flags) : -opened.error().value;
}

long get_entries(OpenFile& file, void* to, std::size_t n) {
  if ((file.flags & O_PATH) != 0) return -EBADF;
  if (is_bad_pointer(to, n)) return -EFAULT;
  std::uint64_t at = file.offset.load(std::memory_order_acquire), end = 0;
  do {
    if (at >= file.size) return 0;
    end = file.directory->end_of(at, n);
    if (end == at) return -EINVAL;
  } while (!file.offset.compare_exchange_weak(at, end, std::memory_order_acq_rel));
  std::memcpy(to, file.directory->at(at), end - at);
  return static_cast<long>(end - at);
}

struct ::dirent* next_entry(OpenFile& file) {
  if ((file.flags & O_PATH) != 0) {
    errno = EBADF;
    return nullptr;
  }
  std::uint64_t at = file.offset.load(std::memory_order_acquire);
  struct ::dirent* entry = nullptr;
  do {
    if (at >= file.size) return nullptr;
    entry = file.directory->at(at);
  } while (!file.offset.compare_exchange_weak(at, at + entry->d_reclen, std::memory_order_acq_rel));
  return entry;
}

long seek(OpenFile& file, std::int64_t offset, int whence) {
  if ((file.flags & O_PATH) != 0) return -EBADF;
  const auto here = static_cast<std::int64_t>(file.offset.load(std::memory_order_acquire));
  if (whence == SEEK_CUR && offset == 0) return static_cast<long>(here);
  if (whence == SEEK_CUR && __builtin_add_overflow(here, offset, &offset)) return -EINVAL;
  if ((whence != SEEK_SET && whence != SEEK_CUR) || offset < 0) return -EINVAL;
  const std::uint64_t target = file.directory->round_up(static_cast<std::uint64_t>(offset));
  file.offset.store(target, std::memory_order_release);
  return static_cast<long>(target);
}

}  // namespace cube::shim::unmounted_directory
