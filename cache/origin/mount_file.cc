#include "cache/origin/mount_file.h"

#include <fmt/core.h>
#include <linux/openat2.h>
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace cube::cache {

namespace sys = base::sys;
using base::Counter;

namespace {

// What openat takes and openat2 would refuse.
constexpr int k_openat2_flags =
    O_ACCMODE | O_APPEND | O_NONBLOCK | O_SYNC | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | O_DIRECTORY | O_DIRECT | O_NOATIME | O_ASYNC;

// An open that fails with ELOOP where a component is a symbolic link.
long open_without_links(const char* path, int flags) {
  struct ::open_how how {};
  how.flags = static_cast<std::uint64_t>(flags & k_openat2_flags);
  how.resolve = RESOLVE_NO_SYMLINKS;
  return sys::raw(SYS_openat2, AT_FDCWD, sys::arg(path), sys::arg(&how), sizeof how);
}

constinit std::atomic<bool> g_has_openat2{true};

// The kernel asks FUSE and NFS for that much at a time, and for the next part when the one before is there.
constexpr std::uint64_t k_one_readahead = 128 << 10;

// Asks for all parts of a large file at once, for such a file costs a second look that the plain reader does not pay
// (Fetch::wants_second_look). Waits for none of them, and an error shows itself in the read that follows.
// A file without pages in the kernel (FUSE with direct I/O) is told by its shared mapping, which is refused: its reads would
// come twice. A file on a block device (major is not 0) needs no more than the kernel does.
void ask_for_all(int fd, const FileStat& stat) {
  if (stat.size <= k_one_readahead || stat.device_major != 0) return;
  const long page = sys::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
  if (sys::failed(page)) return;
  sys::munmap(reinterpret_cast<void*>(page), 1);
  for (std::uint64_t at = 0; at < stat.size; at += k_one_readahead)
    sys::raw(SYS_readahead, fd, static_cast<long>(at), static_cast<long>(k_one_readahead));
}

// What a sandbox may say to a call that it does not know, or the file system to this file.
bool may_be_refused(long error) { return error == -ENOSYS || error == -EPERM || error == -EACCES; }

}  // namespace

base::Result<MountFile> MountFile::open(const char* path, int flags, base::Stats& stats) {
  stats.count(Counter::origin_opens);
  MountFile file;
  long fd = -ENOSYS;
  const bool has_openat2 = g_has_openat2.load(std::memory_order_relaxed);
  if (has_openat2) {
    fd = open_without_links(path, flags);
    file.links_ = fd == -ELOOP ? Links::some : Links::none;
  }
  if (fd == -ELOOP || may_be_refused(fd)) {
    if (fd != -ELOOP) file.links_ = Links::unknown;
    const bool refused = may_be_refused(fd);
    fd = sys::open(path, flags);
    if (has_openat2 && refused && !sys::failed(fd)) g_has_openat2.store(false, std::memory_order_relaxed);
  }
  if (sys::failed(fd)) return base::fail(static_cast<int>(-fd));
  file.fd_ = Fd(static_cast<int>(fd));
  stats.count(Counter::origin_stats);
  const auto stat = stat_fd(file.fd_.get());
  if (stat) file.stat_ = *stat;
  if (!stat && stat.error().value == EINTR) return base::fail(EINTR);  // see FileCache::fetch
  return file;
}

base::Result<void> MountFile::read_whole(std::byte* to, base::Stats& stats) const {
  const std::uint64_t size = stat_.size;
  ask_for_all(fd_.get(), stat_);
  std::uint64_t got = 0;
  while (true) {
    // One byte more than there should be: a file that has grown, and one whose size is a lie, show themselves.
    std::byte beyond{};
    const struct ::iovec parts[2] = {{to + got, size - got}, {&beyond, 1}};
    stats.count(Counter::origin_reads);
    const long n = sys::raw(SYS_preadv, fd_.get(), sys::arg(parts), 2, static_cast<long>(got));
    if (!fd_.is_own()) return base::fail(EINTR);
    if (sys::failed(n)) return base::fail(static_cast<int>(-n));
    stats.count(Counter::origin_bytes, static_cast<std::uint64_t>(n));
    got += static_cast<std::uint64_t>(n);
    if (got > size) return base::fail(ESTALE);
    if (got == size) return {};
    if (n == 0) return base::fail(ESTALE);
  }
}

bool MountFile::is_unchanged(base::Stats& stats) const {
  stats.count(Counter::origin_stats);
  const auto now = stat_fd(fd_.get());
  return now && fd_.is_own() && now->is_unchanged_since(stat_);
}

bool MountFile::is_physical(std::string_view absolute_path) const {
  if (links_ != Links::unknown) return links_ == Links::none;
  char link[64];
  *fmt::format_to_n(link, sizeof link - 1, "/proc/thread-self/fd/{}", fd_.get()).out = '\0';
  char target[PATH_MAX];
  const long n = sys::readlink(link, target, sizeof target);
  return !sys::failed(n) && std::string_view(target, static_cast<std::size_t>(n)) == absolute_path;
}

}  // namespace cube::cache
