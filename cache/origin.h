// What is asked of the origin: a whole file with one open, one statx, one read, one close - and not a byte more.
// Thread safety: all of it. Raw system calls only.
#pragma once

#include <string_view>

#include "cache/base/stats.h"
#include "cache/base/unique_fd.h"
#include "cache/file_stat.h"

namespace cube::cache {

class OriginFile {
 public:
  static base::Result<OriginFile> open(const char* path, int flags, base::Stats& stats);

  const FileStat& stat() const { return stat_; }
  // Reads the whole file to `to`, which has room for stat().size bytes. ESTALE: the file is not what the stat said; else
  // the origin's error. The fd is then as it was, at offset 0.
  base::Result<void> read_whole(std::byte* to, base::Stats& stats) const;
  // Asks again: is it still the file and the content of stat()?
  bool is_unchanged(base::Stats& stats) const;
  // Does the path hold no symbolic link? Known from the open itself, or asked of /proc where the kernel is too old.
  bool is_physical(std::string_view absolute_path) const;
  int release() { return fd_.release(); }

 private:
  base::UniqueFd fd_;
  FileStat stat_{};
  enum class Links { unknown, none, some } links_ = Links::unknown;
};

}  // namespace cube::cache
