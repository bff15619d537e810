// The files on which this process may hold POSIX locks (fcntl, lockf). The kernel drops all POSIX
// locks of a process on a file as soon as the process closes any fd of that file. So the library
// neither opens such a file for itself nor closes an fd of it. Closing an fd that was opened for
// its path alone (O_PATH) drops no lock, and the library's own threads have fd tables of their own.
// Thread safety: all of it, lock-free; async-signal-safe.
#pragma once

#include <atomic>

#include "cache/record/file_stat.h"

namespace cube::cache {

class PosixLocks {
 public:
  // Call it before the program takes a lock through the fd.
  static void note(int fd);
  // Call it when the program has released all locks of the file, and before it closes an fd.
  static void forget(int fd) {
    if (noted_.load(std::memory_order_relaxed) != 0) forget_noted(fd);
  }

  static bool may_hold(const FileStat& stat) {
    return noted_.load(std::memory_order_relaxed) != 0 && is_noted(stat);
  }
  static bool may_hold(const char* path);
  // Closes an fd of the library. Leaves it open, until an exec, if the process may hold a lock on
  // its file.
  static void close(int fd);

 private:
  static void forget_noted(int fd);
  static bool is_noted(const FileStat& stat);
  static constinit std::atomic<std::uint32_t> noted_;
};

}  // namespace cube::cache
