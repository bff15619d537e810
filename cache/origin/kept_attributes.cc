#include "cache/origin/kept_attributes.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cache/base/device_answers.h"
#include "cache/base/memory/off_stack.h"
#include "cache/base/path.h"
#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_resolve_cached = 0x20;  // RESOLVE_CACHED: Linux 5.12

// Opens the path if the kernel can find it without asking the server. Otherwise returns -errno.
long open_kept(int directory, const char* path, int flags, std::uint64_t resolve = 0) {
  struct ::open_how how {};
  how.flags = static_cast<std::uint64_t>(O_PATH | O_CLOEXEC | flags);
  how.resolve = k_resolve_cached | resolve;
  return base::sys::raw(SYS_openat2, directory, base::sys::arg(path), base::sys::arg(&how),
                        sizeof how);
}

// Asks the server once for each device.
bool is_on_fuse(int fd, const FileStat& stat) {
  static constinit base::DeviceAnswers known;
  if (stat.device_major != 0) return false;
  if (const auto answer = known.find(stat.device())) return *answer;
  constexpr decltype(std::declval<struct ::statfs>().f_type) k_fuse = 0x65735546;
  struct ::statfs fs {};
  if (base::sys::failed(base::sys::raw(SYS_fstatfs, fd, base::sys::arg(&fs)))) return false;
  const bool is = fs.f_type == k_fuse;
  known.note(stat.device(), is);
  return is;
}

}  // namespace

bool may_keep_attributes(int directory, const char* name) {
  const long fd = open_kept(directory, name, O_NOFOLLOW);
  if (!base::sys::failed(fd)) base::sys::close(static_cast<int>(fd));
  return fd != -EAGAIN;
}

bool may_keep_attributes(const char* path) {
  if (may_keep_attributes(AT_FDCWD, path)) return true;
  // The kernel may have dropped a directory above from its cache of entries, but still have the
  // name in the last directory.
  const auto [directory, name] = base::split_path(path);
  base::OffStack above;
  if (*path != '/' || name.empty() || !above || directory.size() >= base::OffStack::k_bytes)
    return true;
  std::memcpy(above.data(), directory.data(), directory.size());
  above.data()[directory.size()] = '\0';
  const long fd = open_kept(AT_FDCWD, above.data(), O_DIRECTORY);
  if (base::sys::failed(fd)) return true;
  const base::UniqueFd own(static_cast<int>(fd));
  return may_keep_attributes(own.get(), name.data());
}

bool is_kept_without_links(std::string_view path) {
  base::OffStack copy;
  if (!copy || path.size() >= base::OffStack::k_bytes) return false;
  *std::copy(path.begin(), path.end(), copy.data()) = '\0';
  const long fd = open_kept(AT_FDCWD, copy.data(), 0, RESOLVE_NO_SYMLINKS);
  if (!base::sys::failed(fd)) base::sys::close(static_cast<int>(fd));
  return !base::sys::failed(fd);
}

void drop_pages_of_fuse(int fd, const FileStat& stat) {
  if (is_on_fuse(fd, stat)) base::sys::raw(SYS_fadvise64, fd, 0, 0, POSIX_FADV_DONTNEED);
}

int flag_to_ask_server(const char* path) { return may_keep_attributes(path) ? k_ask_server : 0; }

}  // namespace cube::cache
