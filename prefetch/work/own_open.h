// A large file that a thread has opened itself, because copies of the program's fds are refused or
// the program has closed its fds. This open file does not affect the program's locks: POSIX locks
// belong to an fd table, and the thread has its own table. Thread safety: only the thread that
// opened it.
#pragma once

#include <utility>

#include "cache/fill/large/large_file.h"

namespace cube::prefetch {

struct OwnOpen {
  OwnOpen() = default;
  OwnOpen(const OwnOpen&) = delete;
  OwnOpen& operator=(const OwnOpen&) = delete;
  ~OwnOpen() { drop(); }
  void take(cache::LargeFile& of) {
    drop();
    fd = of.reopen();
    if (fd) file = of.share();
  }
  void drop() {
    fd.reset();
    if (cache::LargeFile* const was = std::exchange(file, nullptr); was != nullptr) was->end();
  }
  cache::LargeFile* file = nullptr;
  cache::OriginFd fd;
};

}  // namespace cube::prefetch
