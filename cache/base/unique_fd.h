// Owns a kernel fd; Closer::close(int) closes it. Thread safety: as a plain value.
#pragma once

#include <utility>

#include "cache/base/sys.h"

namespace cube::base {

template <typename Closer>
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) {
    if (fd_ >= 0) Closer::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

struct RawCloser {
  static void close(int fd) { sys::close(fd); }
};
using UniqueFd = OwnedFd<RawCloser>;

inline Result<UniqueFd> open_fd(const char* path, int flags, mode_t mode = 0) {
  const long fd = sys::open(path, flags | O_CLOEXEC, mode);
  if (sys::failed(fd)) return fail(static_cast<int>(-fd));
  return UniqueFd(static_cast<int>(fd));
}

}  // namespace cube::base
