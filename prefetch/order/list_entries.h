// The raw entries of a list file, read in constant memory: lines, or NUL-separated names if the
// first block contains a NUL. "\r\n" ends a line like "\n", and a byte order mark is skipped. The
// list is read up to the size that it had when it was opened; if it has shrunk, reading stops
// early. has_changed() reports any change. Thread safety: one thread.
#pragma once

#include <climits>
#include <memory>
#include <string>
#include <string_view>

#include "cache/base/unique_fd.h"
#include "cache/record/file_stat.h"

namespace cube::prefetch {

class ListEntries {
 public:
  // Opens only regular files, because a read of a FIFO or a terminal could wait forever. /dev/stdin
  // works if it is a regular file.
  static base::Result<ListEntries> open(const char* path, std::string& why);

  enum class Got { entry, too_long, end, error };
  // `entry` is valid until the next call. If the result is too_long, `entry` is only the beginning,
  // and the rest is skipped.
  Got next(std::string_view& entry);

  bool is_nul_separated() const { return separator_ == '\0'; }
  std::uint64_t line() const { return line_; }  // the line of the last entry, counted from 1
  int error() const { return error_; }
  bool has_changed() const;

 private:
  static constexpr std::size_t k_block = 64 << 10;
  static constexpr std::size_t k_longest = PATH_MAX + 2;  // a path with "- " in front

  bool refill();
  bool is_our_file() const;
  Got finish(std::string_view& entry, std::size_t length, bool ends);

  base::UniqueFd fd_;
  cache::FileStat stat_{};
  std::unique_ptr<char[]> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t offset_ = 0, line_ = 0;
  char separator_ = '\n';
  int error_ = 0;
  bool is_skipping_ = false;  // the rest of a too long entry is being skipped
};

}  // namespace cube::prefetch
