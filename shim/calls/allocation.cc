#include "shim/calls/allocation.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "cache/base/sys.h"
#include "cache/file_cache.h"
#include "cache/region/life/room_for_others.h"
#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim {
namespace {

namespace sys = base::sys;

// The number of tries is bounded, because another program may take the memory each time the region
// gives some back.
constexpr int k_most_tries = 32;

// Returns the region if it lies in this file system. Attaches to an existing region if necessary,
// because this process may not have attached yet.
cache::Region* region_in(dev_t device) {
  if (!process::tells()) return nullptr;
  struct ::stat directory {};
  if (sys::failed(sys::fstatat(AT_FDCWD, process::config().ram_dir.c_str(), &directory, 0)) ||
      directory.st_dev != device)
    return nullptr;
  auto* const cache = attachment::existing_cache();
  return cache == nullptr ? nullptr : &cache->region();
}

// Estimates how many of these bytes are allocated already. If the file has holes, the real number
// may be smaller.
off_t allocated(const struct ::stat& file, off_t at, off_t bytes) {
  return std::min<off_t>(std::clamp<off_t>(file.st_size - at, 0, bytes), file.st_blocks * 512);
}

}  // namespace

bool Allocation::make_room() {
  const KeepErrno keep;
  struct ::stat file {};
  if (at_ < 0 || bytes_ <= 0 || tries_ == k_most_tries || sys::failed(sys::fstat(fd_, &file)))
    return false;
  cache::Region* const region = region_in(file.st_dev);
  if (region == nullptr) return false;
  // If the first try was not enough, either another program has taken the memory that was given
  // back, or the file has holes.
  const off_t has = tries_++ > 0 ? 0 : allocated(file, at_, bytes_);
  return cache::give_back_for(*region, static_cast<std::uint64_t>(bytes_ - has));
}

}  // namespace cube::shim
