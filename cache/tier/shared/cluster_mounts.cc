#include "cache/tier/shared/cluster_mounts.h"

namespace cube::cache {

const ClusterMounts::Row* ClusterMounts::row_at(std::uint64_t row) const {
  const std::uint64_t number = row & ~k_own_machine;
  return number == 0 ? nullptr : &rows_[number - 1];
}

std::uint64_t ClusterMounts::row_of(std::uint64_t tag, bool is_own_machine) {
  const std::uint64_t own = is_own_machine ? k_own_machine : 0;
  tag |= 1;
  for (std::size_t i = 0; i < k_rows; ++i) {
    std::uint64_t found = rows_[i].tag.load(std::memory_order_relaxed);
    if (found == 0 && rows_[i].tag.compare_exchange_strong(found, tag, std::memory_order_relaxed))
      return own | (i + 1);
    if (found == tag) return own | (i + 1);
  }
  return own;
}

// The acquire pairs with the releases in note(), so that the device stored there is visible.
bool ClusterMounts::is_stable(std::uint64_t row) const {
  const Row* const of = row_at(row);
  if (of == nullptr) return false;
  const std::uint32_t agreed = of->agreed.load(std::memory_order_acquire);
  return agreed >= k_needed && agreed < k_unstable;
}

bool ClusterMounts::are_any_stable() const {
  for (std::uint64_t row = 1; row <= k_rows; ++row) {
    if (is_stable(row)) return true;
  }
  return false;
}

void ClusterMounts::localise(std::uint64_t row, FileStat& stat) const {
  const Row& of = *row_at(row);
  const std::uint64_t device = of.device.load(std::memory_order_relaxed);
  stat.device_major = static_cast<std::uint32_t>(device >> 32);
  stat.device_minor = static_cast<std::uint32_t>(device);
  stat.mount_id = of.mount_id.load(std::memory_order_relaxed);
}

// Device numbers of different machines may be equal by chance, so they are compared only if this
// machine has read the file. A disk does not invent inode numbers. So if this machine has read the
// file and it lies on a disk, a different inode number means that a container has mounted another
// tree there.
bool ClusterMounts::are_inodes_true(std::uint64_t row, const FileStat& remote,
                                    const FileStat& here) const {
  const bool is_on_disk = here.device_major != 0;
  return is_stable(row) ||
         ((row & k_own_machine) != 0 && (is_on_disk || remote.device() == here.device()));
}

void ClusterMounts::note(std::uint64_t row, const FileStat& remote, const FileStat& here) {
  if (row_at(row) == nullptr) return;
  Row& of = rows_[(row & ~k_own_machine) - 1];
  if (remote.inode != here.inode) {
    of.agreed.fetch_or(k_unstable, std::memory_order_release);
    return;
  }
  // If earlier files were on another device, two mounts of this node correspond to one mount of the
  // other node. Only a stat then shows on which of the two a file lies, so the row becomes
  // unstable.
  const std::uint64_t before = of.device.exchange(here.device(), std::memory_order_relaxed);
  if (before != 0 && before != here.device())
    of.agreed.fetch_or(k_unstable, std::memory_order_release);
  of.mount_id.store(here.mount_id, std::memory_order_relaxed);
  if (of.agreed.load(std::memory_order_relaxed) < k_needed)
    of.agreed.fetch_add(1, std::memory_order_release);
}

}  // namespace cube::cache
