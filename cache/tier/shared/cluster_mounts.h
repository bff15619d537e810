// Keeps facts about the mounts from which other nodes have read files: the device of the mount on
// this node, and whether files have the same inode numbers on both nodes. For the first files of a
// mount, the inode number that the other node recorded is compared with the inode number that a
// stat of the origin returns. Invariants: a mount is stable after 16 files whose inode numbers
// agree, and permanently unstable after one file whose inode number differs. If this machine itself
// has read a file, and the device is the same or is a disk, a different inode number means a
// different file. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/record/file_stat.h"

namespace cube::cache {

class ClusterMounts {
 public:
  // Returns the row of a mount. `tag` is a hash of the node that has read files there, of the
  // device on that node, and of the origin. If no row is left, row_at() of the result is null.
  // `is_own_machine`: this machine has read the files.
  std::uint64_t row_of(std::uint64_t tag, bool is_own_machine = false);
  bool is_stable(std::uint64_t row) const;
  bool are_any_stable() const;
  // Changes the stat to the stat that this node would see. The mount must be stable.
  void localise(std::uint64_t row, FileStat& stat) const;
  // Whether both stats may describe the same file, apart from the inode number.
  bool may_be_same(std::uint64_t row, const FileStat& remote, const FileStat& here) const;
  // Notes the origin's stat of a file that has the same version as the record.
  void note(std::uint64_t row, const FileStat& remote, const FileStat& here);

 private:
  static constexpr std::uint32_t k_needed = 16, k_unstable = 1U << 31;
  struct Row {
    std::atomic<std::uint64_t> tag;     // 0 is free
    std::atomic<std::uint32_t> agreed;  // consecutive files with equal inodes
    std::atomic<std::uint64_t> device, mount_id;
  };
  static constexpr std::size_t k_rows = 32;
  // A bit in the result of row_of.
  static constexpr std::uint64_t k_own_machine = std::uint64_t{1} << 63;
  const Row* row_at(std::uint64_t row) const;
  Row rows_[k_rows]{};
};

}  // namespace cube::cache
