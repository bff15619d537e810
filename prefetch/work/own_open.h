// A thread's own open file of a large file, where copies of the program's numbers are refused. It
// is no file of the program's, and holds none of its locks. POSIX locks belong to a table of
// numbers, and the thread has another. Thread safety: of its thread alone.
#pragma once

#include <utility>

#include "cache/base/unique_fd.h"
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
  base::UniqueFd fd;
};

}  // namespace cube::prefetch
