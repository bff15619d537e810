// The stat that a copy of an object shows instead of the kernel file's own, so that it agrees with
// that of the path: its inode, its device and its ctime, which the copy carries along as its name
// (a memfd) or in an extended attribute (a file on the disk). So every process that gets the fd can
// determine the stat: after a dup, a fork or an exec, or if the fd was passed to it. Thread-safe.
// Async-signal-safe, no allocation.
#pragma once

#include "cache/record/file_stat.h"

namespace cube::cache {

class CopyName {
 public:
  // `stat`: the object's.
  explicit CopyName(const FileStat& stat);
  const char* c_str() const { return text_; }
  // Labels a file that has no name of its own.
  void write_to(int fd) const;

 private:
  char text_[96];
};

// If this fd is a copy, or if the path is the link of one in /proc, sets its stat. Costs one system
// call for an fd that is not a copy, and none for a path that lies elsewhere.
bool stat_of_copy(int fd, FileStat& stat);
bool stat_of_copy(const char* path, FileStat& stat);

}  // namespace cube::cache
