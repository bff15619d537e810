// An open directory of a pack: where it lies, its stat, and its entries as the kernel's getdents64 gives them ("." and ".."
// first), all in one piece of memory from the kernel. A position is the place of an entry in it, so that d_off, telldir and
// the offset of an fd are one thing.
// It costs one read of the pack, and one more where the directory above has not been opened before (the inode of "..").
// Thread safety: nothing changes after open; open is async-signal-safe.
#pragma once

#include <dirent.h>

#include <string_view>

#include "cache/pack/pack_mount.h"

namespace cube::cache {

class Listing {
 public:
  // ENOENT, ENOTDIR, EIO. `with_names`: else there are no entries. To be ended by release().
  static base::Result<Listing*> open(const PackMount& mount, std::string_view path, bool follows, bool with_names);
  void release();

  const FileStat& stat() const { return stat_; }
  // Absolute, no link in it below the prefix, a zero behind it.
  std::string_view path() const { return {path_, path_length_}; }
  const PackMount& mount() const { return *mount_; }

  // The end of the entries: the position at the end of the directory.
  std::uint64_t end() const { return end_; }
  // The entry at a position that is one, before the end. Not const: readdir's caller may write to it.
  struct ::dirent* at(std::uint64_t position) {
    return reinterpret_cast<struct ::dirent*>(reinterpret_cast<std::byte*>(this) + begin_ + position);
  }
  // The first position that is not before this one.
  std::uint64_t round_up(std::uint64_t position);
  // The end of the last whole entry that fits into `n` bytes from there on.
  std::uint64_t end_of(std::uint64_t position, std::size_t n);

 private:
  Listing() = default;

  FileStat stat_{};
  const PackMount* mount_ = nullptr;
  std::uint64_t mapped_ = 0, begin_ = 0, end_ = 0;
  std::uint64_t path_length_ = 0;
  char path_[PATH_MAX];
};

}  // namespace cube::cache
