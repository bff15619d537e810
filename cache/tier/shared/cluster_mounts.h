// Knows what this process has learned of the mounts that other nodes have read: the number of the
// device that is mounted here, and whether a file has the same inode number there and here. The
// first files of a mount are compared with a stat of the origin. Invariants: a mount is stable
// after 16 files whose inodes agree, and never again after one that does not. On the machine that
// has read a file, and on the same device or a disk, its inode is the same, or it is another file.
// Thread safety: all of it.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/record/file_stat.h"

namespace cube::cache {

class ClusterMounts {
 public:
  // The row of a mount, by the hash of who has read it and of its number there; its number is 0:
  // there is none left. `is_own_machine`: this one has read it.
  std::uint64_t row_of(std::uint64_t tag, bool is_own_machine = false);
  bool is_stable(std::uint64_t row) const;
  bool are_any_stable() const;
  // The stat as it would be here. Only of a stable one.
  void localise(std::uint64_t row, FileStat& stat) const;
  // May it be the same file but for its inode?
  bool may_be_same(std::uint64_t row, const FileStat& remote, const FileStat& here) const;
  // The origin's stat of a file that is the same version.
  void note(std::uint64_t row, const FileStat& remote, const FileStat& here);

 private:
  static constexpr std::uint32_t k_needed = 16, k_unstable = 1U << 31;
  struct Row {
    std::atomic<std::uint64_t> tag;     // 0 is free
    std::atomic<std::uint32_t> agreed;  // files in a row
    std::atomic<std::uint64_t> device, mount_id;
  };
  static constexpr std::size_t k_rows = 32;
  // A bit of the word that callers have of a row.
  static constexpr std::uint64_t k_own_machine = std::uint64_t{1} << 63;
  const Row* row_at(std::uint64_t row) const;
  Row rows_[k_rows]{};
};

}  // namespace cube::cache
