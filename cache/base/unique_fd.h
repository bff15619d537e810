// Owns a kernel fd and closes it by a raw call. Thread safety: as a plain value.
#pragma once

#include <utility>

#include "cache/base/sys.h"

namespace cube::base {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) sys::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

inline Result<UniqueFd> open_fd(const char* path, int flags, mode_t mode = 0) {
  const long fd = sys::open(path, flags | O_CLOEXEC, mode);
  if (sys::failed(fd)) return fail(static_cast<int>(-fd));
  return UniqueFd(static_cast<int>(fd));
}

}  // namespace cube::base
