#include "shim/path/directory_paths.h"

#include <cstring>
#include <iterator>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/process/proc_fd_name.h"
#include "shim/fd/fd_table.h"

namespace cube::shim::path_filter {
namespace {

namespace sys = base::sys;

// Directories whose reported path was confirmed within the last second. Each word is a hash of the
// path, the directory and the time.
constinit std::atomic<std::uint64_t> g_found[16]{};
constinit std::atomic<std::uint32_t> g_renewals{0};

long read_fd_path(int fd, char* to) {
  to[0] = '\0';
  if (const OpenFileRef served = g_fds.acquire_kind(fd, RowKind::unmounted_directory)) {
    const std::string_view path = served->directory->path();
    std::memcpy(to, path.data(), path.size() + 1);
    return static_cast<long>(path.size());
  }
  const long n = sys::readlink(base::ProcFdName(fd).c_str(), to, PATH_MAX - 1);
  // The text may be the path of a removed directory, or may not be a path in this mount namespace.
  return n <= 0 || to[0] != '/' ? -1 : n;
}

// True if the path that the kernel reports for an open directory still leads to this directory. A
// mount may now cover the path, or another directory may have replaced the directory at the origin.
// A path that ends in " (deleted)" may be valid. Each check is a request to the origin, so the
// answer is kept for a second. It is not kept if every open asks the origin anyway.
bool leads_to(std::string_view path, int dir) {
  const auto open = cache::stat_path(dir, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC);
  if (!open) return false;
  const std::uint64_t what[] = {base::hash_path(path), open->inode,
                                open->device(),        open->mount_id,
                                base::boot_ns() >> 30, g_renewals.load(std::memory_order_acquire)};
  const std::uint64_t hash = base::hash_bytes(what, sizeof what);
  std::atomic<std::uint64_t>& found = g_found[what[0] % std::size(g_found)];
  const bool is_kept = process::config().consistency.kind != base::ConsistencyKind::open;
  if (is_kept && found.load(std::memory_order_relaxed) == hash) return true;
  const auto there = cache::stat_path(AT_FDCWD, path.data(), AT_STATX_DONT_SYNC);
  if (!there || !there->same_file(*open) || there->mount_id != open->mount_id) return false;
  found.store(hash, std::memory_order_relaxed);
  return true;
}

}  // namespace

std::string_view working_directory(char* buffer) {
  buffer[0] = '\0';
  const long n = sys::getcwd(buffer, PATH_MAX);
  if (sys::failed(n) || n < 2 || buffer[0] != '/') return {};
  return {buffer, static_cast<std::size_t>(n) - 1};
}

std::string_view directory_of(int dir, char* buffer, Care care) {
  std::string_view path;
  if (dir == AT_FDCWD) {
    path = working_directory(buffer);
  } else {
    const long n = read_fd_path(dir, buffer);
    if (n > 0) path = {buffer, static_cast<std::size_t>(n)};
    buffer[path.size()] = '\0';
    // The directory belongs to a pack or bucket, so the kernel has nothing to check.
    if (g_fds.kind(dir) == RowKind::unmounted_directory) return path;
  }
  return path.empty() || care == Care::thorough || leads_to(path, dir) ? path : std::string_view();
}

void forget_found_directories() { g_renewals.fetch_add(1, std::memory_order_acq_rel); }

}  // namespace cube::shim::path_filter
