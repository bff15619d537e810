// A thread's own open file of a large file. It is used if copies of the program's fds are refused,
// or if the program has closed its fds. It is not a file of the program and holds none of its
// locks: POSIX locks belong to an fd table, and the thread has another one. Thread safety: its
// thread alone.
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
