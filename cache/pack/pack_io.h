// Whole reads and writes at a place of a file, by raw calls. Thread safety and async-signal safety: all of it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::cache {

// How much there was, which is less than `n` only at the end of the file.
inline base::Result<std::size_t> read_at(int fd, void* to, std::size_t n, std::uint64_t at) {
  std::size_t got = 0;
  while (got < n) {
    const long part = base::sys::pread(fd, static_cast<std::byte*>(to) + got, n - got, static_cast<std::int64_t>(at + got));
    if (part == -EINTR) continue;
    if (base::sys::failed(part)) return base::fail(static_cast<int>(-part));
    if (part == 0) break;
    got += static_cast<std::size_t>(part);
  }
  return got;
}

inline base::Result<void> write_at(int fd, const void* from, std::size_t n, std::uint64_t at) {
  while (n != 0) {
    const long part = base::sys::pwrite(fd, from, n, static_cast<std::int64_t>(at));
    if (part == -EINTR) continue;
    if (base::sys::failed(part)) return base::fail(static_cast<int>(-part));
    from = static_cast<const std::byte*>(from) + part;
    n -= static_cast<std::size_t>(part);
    at += static_cast<std::uint64_t>(part);
  }
  return {};
}

}  // namespace cube::cache
