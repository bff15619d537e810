// The inode, device and ctime that a copy of an object shows. A stat of the copy's fd shows these
// values, so it agrees with a stat of the object's path. The values are stored in the copy itself:
// in the name of a memfd, or in an extended attribute of a file on disk. So every process that has
// the fd can read the values, even after a fork or an exec. Thread-safe. Async-signal-safe, no
// allocation.
#pragma once

#include "cache/record/file_stat.h"

namespace cube::cache {

class CopyName {
 public:
  // `stat`: the object's stat.
  explicit CopyName(const FileStat& stat);
  const char* c_str() const { return text_; }
  // Stores the name in an extended attribute of a file that is not a memfd.
  void write_to(int fd) const;

 private:
  char text_[96];
};

// Replaces the inode, device and ctime in `stat` if the file is a copy. The path of a copy is the
// link to its fd in /proc. Returns whether it did. For an fd of any other file, this takes one
// system call; for a path outside /proc, none.
bool stat_of_copy(int fd, FileStat& stat);
bool stat_of_copy(const char* path, FileStat& stat);

}  // namespace cube::cache
