// Keeps facts about the mounts from which other nodes have read files: the device of each mount on
// this node, and whether its files have the same inode numbers on both nodes. For the first files
// of a mount, the inode number in the other node's record is compared with the inode number of a
// stat on this node. Invariants: after 16 files whose inode numbers agree, a mount is stable. After
// one file whose inode number differs, the mount is never stable: it invents inode numbers, or the
// file has been replaced. If this machine itself has read a file, and the device is the same or is
// a disk, a different inode number means a different file. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/record/file_stat.h"

namespace cube::cache {

class ClusterMounts {
 public:
  // Returns the row of a mount. `tag` is a hash of the node that has read the files, of its device,
  // and of the origin. If no row is left, row_at() of the result is null. `is_own_machine`: this
  // machine has read the files.
  std::uint64_t row_of(std::uint64_t tag, bool is_own_machine = false);
  bool is_stable(std::uint64_t row) const;
  bool are_any_stable() const;
  // Changes the stat of another node to the stat that this node would see. The mount must be
  // stable.
  void localise(std::uint64_t row, FileStat& stat) const;
  // Whether an inode number identifies a file on both nodes. If true, a record whose inode number
  // differs is outdated. If false, such a record may belong to this file or to another one.
  bool are_inodes_true(std::uint64_t row, const FileStat& remote, const FileStat& here) const;
  // Notes the stats of a file on both nodes. Their sizes and times must agree.
  void note(std::uint64_t row, const FileStat& remote, const FileStat& here);

 private:
  static constexpr std::uint32_t k_needed = 16, k_unstable = 1U << 31;
  struct Row {
    std::atomic<std::uint64_t> tag;     // 0 is free
    std::atomic<std::uint32_t> agreed;  // files with equal inode numbers; k_unstable: an inode
                                        // number has differed
    std::atomic<std::uint64_t> device, mount_id;
  };
  static constexpr std::size_t k_rows = 32;
  // This bit in the result of row_of() means that this machine has read the files.
  static constexpr std::uint64_t k_own_machine = std::uint64_t{1} << 63;
  const Row* row_at(std::uint64_t row) const;
  Row rows_[k_rows]{};
};

}  // namespace cube::cache
