// The entries of a list file as they stand, in constant memory: lines, or NUL-separated names where
// the first block holds a NUL. "\r\n" ends a line as "\n" does, and a byte order mark is left out.
// The list is read as far as it went when it was opened. One that shrinks ends early, and
// has_changed() tells of any change. Thread safety: one thread.
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
  // Only regular files: a FIFO or a terminal could be waited for without end. /dev/stdin will do
  // where it is one.
  static base::Result<ListEntries> open(const char* path, std::string& why);

  enum class Got { entry, too_long, end, error };
  // `entry` is good until the next call. After too_long, which shows the beginning, the rest of the
  // entry is skipped.
  Got next(std::string_view& entry);

  bool is_nul_separated() const { return separator_ == '\0'; }
  std::uint64_t line() const { return line_; }  // of the last entry, from 1
  int error() const { return error_; }
  bool has_changed() const;

 private:
  static constexpr std::size_t k_block = 64 << 10;
  static constexpr std::size_t k_longest = PATH_MAX + 2;  // with "- " in front

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
  bool is_skipping_ = false;  // the rest of an entry that was too long
};

}  // namespace cube::prefetch
