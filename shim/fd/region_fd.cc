#include "shim/fd/region_fd.h"

#include <atomic>

#include "shim/process/attachment.h"

namespace cube::shim::region_fd {
namespace {

namespace sys = base::sys;

constexpr int k_least_number = 800;
constinit std::atomic<int> g_region_fd{-1};

}  // namespace

int kept() { return g_region_fd.load(std::memory_order_acquire); }

void forget(int fd) { g_region_fd.compare_exchange_strong(fd, -1, std::memory_order_acq_rel); }

int keep(int fd) {
  const long high = sys::fcntl(fd, F_DUPFD_CLOEXEC, k_least_number);
  if (sys::failed(high)) return -1;
  int other = -1;
  if (g_region_fd.compare_exchange_strong(other, static_cast<int>(high), std::memory_order_acq_rel))
    return static_cast<int>(high);
  // Another thread has already stored an fd.
  sys::close(static_cast<int>(high));
  return other;
}

int get(cache::Region& region) {
  const int fd = kept();
  if (fd >= 0 && region.is_ours(fd)) return fd;
  forget(fd);
  const auto fresh = region.reopen(O_RDONLY);
  return fresh ? keep(fresh->get()) : -1;
}

void drop() {
  const int fd = g_region_fd.exchange(-1, std::memory_order_acq_rel);
  cache::FileCache* const cache = attachment::attached_cache();
  if (fd >= 0 && cache != nullptr && cache->region().is_ours(fd)) sys::close(fd);
}

}  // namespace cube::shim::region_fd
