// A directory's listing: its path, its stat, and its entries in the form of getdents64 ("." and
// ".." first), all in one mapping. A position is the offset of an entry among the entries, in
// bytes. add() uses positions as d_off; add_all() keeps the d_off of the origin. Thread safety:
// immutable after the last add(). All functions are async-signal-safe and never call malloc.
#pragma once

#include <dirent.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "cache/base/result.h"
#include "cache/record/file_stat.h"

namespace cube::cache {

class Listing {
 public:
  // The size in bytes of an entry with a name of this length.
  static constexpr std::uint64_t entry_bytes(std::size_t name) {
    return (k_name_at + name + 1 + 7) / 8 * 8;
  }

  // Makes an empty listing with room for `bytes` bytes of entries. The path of the listing is
  // prefix/below, or the prefix if `below` is empty. The caller must call release() at the end.
  // Errors: ENAMETOOLONG, ENOMEM.
  static base::Result<Listing*> make(std::string_view prefix, std::string_view below,
                                     const FileStat& stat, std::uint64_t bytes);
  void release();
  // Adds an entry, for which there must be room. `type`: as in dirent (DT_REG ...).
  void add(std::string_view name, std::uint64_t inode, std::uint8_t type);
  // Fills an empty listing with entries from the kernel. The entries keep the d_off that their
  // origin gave them.
  void add_all(std::span<const std::byte> entries);

  const FileStat& stat() const { return stat_; }
  // The absolute path, which contains no links below the prefix. A zero byte follows the path.
  std::string_view path() const { return {path_, path_length_}; }

  // The position at the end of the directory.
  std::uint64_t end() const { return end_; }
  // The entry that begins at this position, which must be before the end. The result is not const,
  // because readdir's caller may write to it.
  struct ::dirent* at(std::uint64_t position) {
    return reinterpret_cast<struct ::dirent*>(reinterpret_cast<std::byte*>(this) + sizeof(Listing) +
                                              position);
  }
  // The position of the first entry that begins at or after this position, or the end.
  std::uint64_t round_up(std::uint64_t position);
  // The d_off of the entry that ends at this position, or 0 at the start. telldir returns this
  // value.
  std::int64_t offset_at(std::uint64_t position);
  // The position after the entry with this d_off. Empty: there is no such entry.
  std::optional<std::uint64_t> position_of(std::int64_t offset);
  // The end of the last whole entry that fits into the `n` bytes from this position on.
  std::uint64_t end_of(std::uint64_t position, std::size_t n);

 private:
  // The offset of the name in an entry of getdents64. If file offsets have 64 bits, libc's
  // structure has the same offset.
  static constexpr std::size_t k_name_at = offsetof(struct ::dirent, d_name);
  static_assert(sizeof(ino_t) == 8 && sizeof(off_t) == 8 && k_name_at == 19);

  Listing() = default;

  FileStat stat_{};
  std::uint64_t mapped_ = 0, end_ = 0;
  std::uint64_t path_length_ = 0;
  char path_[PATH_MAX];
};

}  // namespace cube::cache
