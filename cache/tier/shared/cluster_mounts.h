// Holds what this process has learned about the mounts that other nodes have read from: the device
// that is mounted here, and whether files have the same inode numbers on both nodes. For the first
// files of a mount, the inode number that the other node recorded is compared with the one that a
// stat of the origin returns. Invariants: a mount is stable after 16 files whose inode numbers
// agree, and permanently unstable after one whose inode number differs. For a file that this
// machine itself has read, another inode number means another file if the device is the same, or is
// a disk. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/record/file_stat.h"

namespace cube::cache {

class ClusterMounts {
 public:
  // Returns the row of a mount. `tag` is the hash of the node that has read it, of the device
  // there, and of the origin. The row is null (see row_at) if none is left. `is_own_machine` means
  // that this machine has read it.
  std::uint64_t row_of(std::uint64_t tag, bool is_own_machine = false);
  bool is_stable(std::uint64_t row) const;
  bool are_any_stable() const;
  // Changes the stat into the one that this node would see. The mount must be stable.
  void localise(std::uint64_t row, FileStat& stat) const;
  // True if it may be the same file, apart from its inode number.
  bool may_be_same(std::uint64_t row, const FileStat& remote, const FileStat& here) const;
  // Notes the origin's stat of a file that is of the same version.
  void note(std::uint64_t row, const FileStat& remote, const FileStat& here);

 private:
  static constexpr std::uint32_t k_needed = 16, k_unstable = 1U << 31;
  struct Row {
    std::atomic<std::uint64_t> tag;     // 0 is free
    std::atomic<std::uint32_t> agreed;  // consecutive files with equal inodes
    std::atomic<std::uint64_t> device, mount_id;
  };
  static constexpr std::size_t k_rows = 32;
  // A bit of the word that row_of returns.
  static constexpr std::uint64_t k_own_machine = std::uint64_t{1} << 63;
  const Row* row_at(std::uint64_t row) const;
  Row rows_[k_rows]{};
};

}  // namespace cube::cache
