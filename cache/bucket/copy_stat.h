// The inode, device and ctime that a copy of an object shows. They replace those of the kernel
// file, so that the stat of the fd agrees with the stat of the path. The copy carries these values
// in its name (a memfd) or in an extended attribute (a file on the disk). So every process that
// gets the fd can determine the stat: after a dup, a fork or an exec, or when it receives the fd
// from another process. Thread-safe. Async-signal-safe, no allocation.
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

// Adapts `stat` if the fd is a copy, or if the path is the link of a copy's fd in /proc. Costs one
// system call for an fd that is not a copy, and none for a path outside /proc.
bool stat_of_copy(int fd, FileStat& stat);
bool stat_of_copy(const char* path, FileStat& stat);

}  // namespace cube::cache
