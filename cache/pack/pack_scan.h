// Reads the head of one record of a pack (read_pack_head), or of all its records in the order of
// the file (PackScan). Nothing outside the given bytes is read, even if they are damaged. All
// returned heads are sound. PackScan also checks that each record lies where a writer would have
// put it. Thread safety: a PackScan belongs to one thread; read_pack_head is a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "cache/pack/pack_format.h"

namespace cube::cache {

struct PackEntry {
  std::uint64_t offset = 0, bytes = 0;  // the place of the record in the pack
  std::uint64_t data_offset = 0;        // the place of the data in the pack
  std::uint64_t data_size = 0, data_hash = 0;
  RecordKind kind = RecordKind::file;
  FileStat stat{};

  std::uint64_t end() const { return offset + bytes; }
};

// Reads the head from the first `got` bytes of a record. The record begins at `offset`, and must
// end at or before `end`. False: there is no sound record. `path` points into `bytes`.
bool read_pack_head(const std::byte* bytes, std::size_t got, std::uint64_t offset,
                    std::uint64_t end, PackEntry& entry, std::string_view& path);
inline constexpr std::size_t k_most_pack_head = sizeof(Record) + PATH_MAX;

class PackScan {
 public:
  PackScan(int fd, std::uint64_t begin, std::uint64_t end) : fd_(fd), at_(begin), end_(end) {}

  enum class Next : std::uint8_t { record, end, damaged };
  // `path` is valid until the next call. `damaged` and `end` are final. After `damaged`, error() is
  // an errno, or 0 if the bytes are wrong.
  Next next(PackEntry& entry, std::string_view& path);
  std::uint64_t position() const { return at_; }  // the end of the last record
  int error() const { return error_; }

 private:
  static constexpr std::size_t k_window = 256 << 10, k_short_window = 8 << 10;
  // Returns the `n` bytes from `at` on, or fewer at the end, and sets `got` to their number. Null:
  // the read has failed (see error()).
  const std::byte* look(std::uint64_t at, std::size_t n, std::size_t& got);

  int fd_;
  std::uint64_t at_, end_;
  std::unique_ptr<std::byte[]> window_;
  std::uint64_t window_at_ = 0;
  std::size_t window_bytes_ = 0;
  int error_ = 0;
  Next last_ = Next::record;
};

}  // namespace cube::cache
