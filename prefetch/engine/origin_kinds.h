// Records which origins are local. io_uring tries an open or a read on the submitting thread first.
// It passes the operation to a kernel worker only if it detects in time that the operation would
// have to wait. On FUSE, NFS and similar file systems, it cannot detect this: their open() waits
// for the server even if the name is cached, and every other fetch waits with it. Therefore an
// operation that can wait is passed to a worker at once. A file on a block device is tried inline
// first. Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>

namespace cube::prefetch {

class OriginKinds {
 public:
  // Returns false until a file of the origin has been seen.
  bool is_local(std::uint32_t origin) const {
    return origin < k_origins && kinds_[origin] == Kind::local;
  }
  // Notes that a file of the origin is on this device. One remote file makes the origin remote,
  // because a link or a mount can lead anywhere.
  void learn(std::uint32_t origin, std::uint32_t device_major) {
    if (origin >= k_origins || kinds_[origin] == Kind::remote) return;
    // Major 0 means that there is no block device. By this rule, tmpfs and btrfs count as remote,
    // so each of their operations uses a worker.
    kinds_[origin] = device_major == 0 ? Kind::remote : Kind::local;
  }

 private:
  enum class Kind : std::uint8_t { unknown, local, remote };
  static constexpr std::uint32_t k_origins = 16;  // further origins count as remote
  std::array<Kind, k_origins> kinds_{};
};

}  // namespace cube::prefetch
