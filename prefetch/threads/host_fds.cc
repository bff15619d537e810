#include "prefetch/threads/host_fds.h"

#include "cache/base/sys.h"

namespace cube::prefetch {
namespace {

// Older headers lack the names of these calls.
constexpr long k_pidfd_open = 434, k_pidfd_getfd = 438;

}  // namespace

base::Result<HostFds> HostFds::open() {
  const long opened = base::sys::raw(k_pidfd_open, base::sys::getpid(), 0);
  if (base::sys::failed(opened)) return base::fail(static_cast<int>(-opened));
  return HostFds(base::UniqueFd(static_cast<int>(opened)));
}

base::Result<base::UniqueFd> HostFds::copy_of(int fd) const {
  const long copy = base::sys::raw(k_pidfd_getfd, process_.get(), fd, 0);
  if (base::sys::failed(copy)) return base::fail(static_cast<int>(-copy));
  return base::UniqueFd(static_cast<int>(copy));
}

}  // namespace cube::prefetch
