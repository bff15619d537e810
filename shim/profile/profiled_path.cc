#include "shim/profile/profiled_path.h"

#include <algorithm>
#include <cstdint>

#include "cache/base/path.h"
#include "cache/base/process/proc_fd_name.h"
#include "cache/base/sys.h"

namespace cube::shim::profile {

// The loader, allocators and libunwind read files below these directories, but no data set lies
// there.
constexpr std::string_view k_never[] = {"/proc", "/sys", "/dev"};

bool ProfiledPath::append(const char* path) {
  while (*path != '\0') {
    while (*path == '/') ++path;
    const char* end = path;
    while (*end != '\0' && *end != '/') ++end;
    const auto n = static_cast<std::size_t>(end - path);
    if (n != 0 && !(n == 1 && *path == '.')) {
      if (size_ + 1 + n >= sizeof text_) return false;
      text_[size_++] = '/';
      std::copy_n(path, n, text_ + size_);
      size_ += n;
    }
    path = end;
  }
  return true;
}

bool ProfiledPath::find(const base::Config& config, int dir, const char* path) {
  namespace sys = base::sys;
  constexpr std::uintptr_t k_first_page = 4096;
  const auto address = reinterpret_cast<std::uintptr_t>(path);
  // The kernel refuses such a pointer with EFAULT.
  if (address < k_first_page || address >> 47 != 0) return false;
  size_ = 0;
  if (*path != '/') {
    text_[0] = '\0';
    const long n = dir == AT_FDCWD
                       ? sys::getcwd(text_, sizeof text_) - 1
                       : sys::readlink(base::ProcFdName(dir).c_str(), text_, sizeof text_ - 1);
    if (n <= 0 || text_[0] != '/') return false;
    size_ = n == 1 ? 0 : static_cast<std::size_t>(n);
  }
  if (!append(path)) return false;
  const auto is_below = [&](std::string_view directory) {
    return base::is_at_or_below(text(), directory);
  };
  if (config.profile_all)
    return size_ != 0 && std::none_of(std::begin(k_never), std::end(k_never), is_below);
  return std::any_of(config.prefixes.begin(), config.prefixes.end(), is_below);
}

}  // namespace cube::shim::profile
