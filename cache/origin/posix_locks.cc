#include "cache/origin/posix_locks.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cache/base/hash.h"

namespace cube::cache {
namespace {

// Hashes of device and inode; 0: free. Once a program has locked more files at a time than this,
// all files count as locked.
constinit std::array<std::atomic<std::uint64_t>, 256> g_files{};
constinit std::atomic<bool> g_are_too_many{false};

std::uint64_t hash_of(const FileStat& stat) {
  return base::hash_inode(stat.device(), stat.inode) | 1;
}

std::atomic<std::uint64_t>* find(std::uint64_t hash) {
  const auto found = std::ranges::find_if(g_files, [&](const std::atomic<std::uint64_t>& file) {
    return file.load(std::memory_order_acquire) == hash;
  });
  return found == g_files.end() ? nullptr : found;
}

}  // namespace

constinit std::atomic<std::uint32_t> PosixLocks::noted_{0};

bool PosixLocks::is_noted(const FileStat& stat) {
  return g_are_too_many.load(std::memory_order_relaxed) || find(hash_of(stat)) != nullptr;
}

// Two threads may note one file twice; forget_noted() finds both.
void PosixLocks::note(int fd) {
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!stat || !stat->is_regular() || is_noted(*stat)) return;
  const std::uint64_t hash = hash_of(*stat);
  const bool has_row = std::ranges::any_of(g_files, [&](std::atomic<std::uint64_t>& file) {
    std::uint64_t free = 0;
    return file.compare_exchange_strong(free, hash, std::memory_order_acq_rel);
  });
  if (!has_row) g_are_too_many.store(true, std::memory_order_relaxed);
  noted_.fetch_add(1, std::memory_order_release);
}

void PosixLocks::forget_noted(int fd) {
  const auto stat = stat_fd(fd, AT_STATX_DONT_SYNC);
  if (!stat || !stat->is_regular()) return;
  const long flags = base::sys::fcntl(fd, F_GETFL);
  if (base::sys::failed(flags) || (flags & O_PATH) != 0) return;
  const std::uint64_t hash = hash_of(*stat);
  while (std::atomic<std::uint64_t>* const file = find(hash)) {
    std::uint64_t noted = hash;
    if (file->compare_exchange_strong(noted, 0, std::memory_order_acq_rel))
      noted_.fetch_sub(1, std::memory_order_relaxed);
  }
}

bool PosixLocks::may_hold(const char* path) {
  if (noted_.load(std::memory_order_relaxed) == 0) return false;
  const auto stat = stat_path(AT_FDCWD, path, AT_STATX_DONT_SYNC);
  return stat && is_noted(*stat);
}

void PosixLocks::close(int fd) {
  const bool are_any = noted_.load(std::memory_order_relaxed) != 0;
  const auto stat = are_any ? stat_fd(fd, AT_STATX_DONT_SYNC) : base::fail(ENOENT);
  if (!stat || !is_noted(*stat)) base::sys::close(fd);
}

}  // namespace cube::cache
