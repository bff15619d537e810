// Whole reads and writes at a place of a file, by raw calls, and where a file lies. Thread safety: all of it; async-signal
// safety: the reads and writes.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include <string>

#include "cache/base/sys.h"

namespace cube::cache {

// Where the name lies, as a path that can be opened.
inline std::string directory_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

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
