#include "cache/region/life/life_lock.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>

#include "cache/base/sys.h"

namespace cube::cache {
namespace {

namespace sys = base::sys;

// The locked bytes lie beyond the end of any file, so that they do not conflict with other locks.
constexpr std::int64_t k_first_byte = std::int64_t{1} << 62;

// The fd and the file of the LifeLock that is currently open.
constinit std::atomic<int> g_open_fd{-1};
constinit std::atomic<std::uint64_t> g_open_device{0}, g_open_inode{0};

// Set if a sandbox has refused MADV_DONTFORK. A forked child then inherits the mapping.
constinit std::atomic<bool> g_is_inherited{false};

struct ::flock lock_of(short type, std::uint32_t slot, std::uint32_t count) {
  struct ::flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = k_first_byte + slot;
  lock.l_len = count;
  return lock;
}

}  // namespace

LifeLock LifeLock::open(base::UniqueFd fd) {
  struct ::stat st {};
  sys::fstat(fd.get(), &st);
  g_open_device.store(st.st_dev, std::memory_order_relaxed);
  g_open_inode.store(st.st_ino, std::memory_order_relaxed);
  g_open_fd.store(fd.get(), std::memory_order_release);
  return LifeLock(std::move(fd));
}

LifeLock::~LifeLock() {
  if (!fd_) return;
  fd_.reset();
  g_open_fd.store(-1, std::memory_order_release);
}

base::Result<void> LifeLock::take(std::uint32_t slot) {
  struct ::flock lock = lock_of(F_WRLCK, slot, 1);
  const long error = sys::fcntl(fd_.get(), F_OFD_SETLK, sys::arg(&lock));
  if (sys::failed(error)) return base::fail(static_cast<int>(-error));
  return {};
}

base::Result<base::Mapping> LifeLock::keep() {
  auto mapping = base::Mapping::shared(fd_.get(), 0, 4096, PROT_NONE);
  if (mapping && sys::failed(sys::madvise(mapping->data(), mapping->size(), MADV_DONTFORK)))
    g_is_inherited.store(true, std::memory_order_relaxed);
  if (mapping) sys::madvise(mapping->data(), mapping->size(), MADV_DONTDUMP);
  return mapping;
}

void drop_life_after_fork(base::Mapping& life) {
  if (!g_is_inherited.load(std::memory_order_relaxed)) life.forget();
  life.reset();
}

LifeProbe::LifeProbe(base::Result<base::UniqueFd> fd) {
  if (fd) fd_ = std::move(*fd);
}

bool LifeProbe::is_held(std::uint32_t slot, std::uint32_t count) const {
  if (!fd_) return true;
  if (count == 0) return false;
  struct ::flock lock = lock_of(F_WRLCK, slot, count);
  if (sys::failed(sys::fcntl(fd_.get(), F_OFD_GETLK, sys::arg(&lock)))) return true;
  return lock.l_type != F_UNLCK;
}

void close_life_lock_after_fork() {
  const int fd = g_open_fd.exchange(-1, std::memory_order_acquire);
  struct ::stat st {};
  // The parent may have closed the fd before the fork, and opened another file under the same
  // number.
  if (fd < 0 || sys::failed(sys::fstat(fd, &st))) return;
  if (st.st_dev == g_open_device.load(std::memory_order_relaxed) &&
      st.st_ino == g_open_inode.load(std::memory_order_relaxed))
    sys::close(fd);
}

}  // namespace cube::cache
