// Which origins answer from this machine: io_uring tries an open, and a read, on the thread that
// submits it, and gives it to a kernel worker only where it sees in time that it would have to
// wait. FUSE, NFS and their like do not let it see: their open() waits for the server even where
// the name is cached, and all other fetches with it. So what may wait goes to a worker at once, and
// what lies on a block device is tried first. Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>

namespace cube::prefetch {

class OriginKinds {
 public:
  // False until a file of the origin has been seen.
  bool is_local(std::uint32_t origin) const {
    return origin < k_origins && kinds_[origin] == Kind::local;
  }
  // A file of the origin is on this device. One that is not local is enough: a link or a mount can
  // lead anywhere.
  void learn(std::uint32_t origin, std::uint32_t device_major) {
    if (origin >= k_origins || kinds_[origin] == Kind::remote) return;
    // 0: what has no device. tmpfs and btrfs are taken for remote by that, which costs them a
    // worker.
    kinds_[origin] = device_major == 0 ? Kind::remote : Kind::local;
  }

 private:
  enum class Kind : std::uint8_t { unknown, local, remote };
  static constexpr std::uint32_t k_origins = 16;  // those beyond count as remote
  std::array<Kind, k_origins> kinds_{};
};

}  // namespace cube::prefetch
