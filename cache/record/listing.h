// A directory as the cache knows it: where it lies, its stat, and its entries as the kernel's
// getdents64 gives them ("." and ".." first), all in one piece of memory from the kernel. A
// position is the place of an entry in it, so that d_off, telldir and the offset of an fd are one
// thing. Thread safety: nothing changes after the last add(). All of it is async-signal-safe and
// allocates nothing by malloc.
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
  // The room that an entry of this name takes.
  static constexpr std::uint64_t entry_bytes(std::size_t name) {
    return (k_name_at + name + 1 + 7) / 8 * 8;
  }

  // An empty one with room for `bytes` of entries. Its path is prefix/below, or the prefix alone.
  // To be ended by release(). ENAMETOOLONG; ENOMEM.
  static base::Result<Listing*> make(std::string_view prefix, std::string_view below,
                                     const FileStat& stat, std::uint64_t bytes);
  void release();
  // There must be room for it. `type`: as dirent has it (DT_REG ...).
  void add(std::string_view name, std::uint64_t inode, std::uint8_t type);
  // To an empty one: entries as the kernel gave them, with the offsets of their origin.
  void add_all(std::span<const std::byte> entries);

  const FileStat& stat() const { return stat_; }
  // Absolute, no link in it below the prefix, a zero behind it.
  std::string_view path() const { return {path_, path_length_}; }

  // The end of the entries: the position at the end of the directory.
  std::uint64_t end() const { return end_; }
  // The entry at a position that is one, before the end. Not const: readdir's caller may write to
  // it.
  struct ::dirent* at(std::uint64_t position) {
    return reinterpret_cast<struct ::dirent*>(reinterpret_cast<std::byte*>(this) + sizeof(Listing) +
                                              position);
  }
  // The first position that is not before this one.
  std::uint64_t round_up(std::uint64_t position);
  // The d_off of the entry that ends at this position, as telldir gives it; 0 at the begin.
  std::int64_t offset_at(std::uint64_t position);
  // The position behind the entry of this d_off. Nothing: there is no such entry.
  std::optional<std::uint64_t> position_of(std::int64_t offset);
  // The end of the last whole entry that fits into `n` bytes from there on.
  std::uint64_t end_of(std::uint64_t position, std::size_t n);

 private:
  // As getdents64 has it, and libc's structure where offsets have 64 bits.
  static constexpr std::size_t k_name_at = offsetof(struct ::dirent, d_name);
  static_assert(sizeof(ino_t) == 8 && sizeof(off_t) == 8 && k_name_at == 19);

  Listing() = default;

  FileStat stat_{};
  std::uint64_t mapped_ = 0, end_ = 0;
  std::uint64_t path_length_ = 0;
  char path_[PATH_MAX];
};

}  // namespace cube::cache
