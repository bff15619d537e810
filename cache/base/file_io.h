// Reads and writes whole ranges of a file, and visits the entries of a directory, by raw system
// calls. Thread-safe and async-signal-safe.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/base/sys.h"

namespace cube::base {

// Returns the number of bytes read, which is less than `n` only at the end of the file.
inline Result<std::size_t> read_at(int fd, void* to, std::size_t n, std::uint64_t at) {
  std::size_t got = 0;
  while (got < n) {
    const long part = sys::pread(fd, static_cast<std::byte*>(to) + got, n - got,
                                 static_cast<std::int64_t>(at + got));
    if (part == -EINTR) continue;
    if (sys::failed(part)) return fail(static_cast<int>(-part));
    if (part == 0) break;
    got += static_cast<std::size_t>(part);
  }
  return got;
}

// Writes all `n` bytes. EIO: the kernel wrote nothing, but reported no error.
inline Result<void> write_at(int fd, const void* from, std::size_t n, std::uint64_t at) {
  while (n != 0) {
    const long part = sys::pwrite(fd, from, n, static_cast<std::int64_t>(at));
    if (part == -EINTR) continue;
    if (part <= 0) return fail(part == 0 ? EIO : static_cast<int>(-part));
    from = static_cast<const std::byte*>(from) + part;
    n -= static_cast<std::size_t>(part);
    at += static_cast<std::uint64_t>(part);
  }
  return {};
}

// An entry of a directory, as getdents64 returns it.
struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t next;
  unsigned short length;
  unsigned char type;
  char name[1];  // continues beyond the structure, up to a zero byte
  const char* c_str() const {
    return reinterpret_cast<const char*>(this) + offsetof(DirectoryEntry, name);
  }
};

// Calls visit(entry) for each entry of a directory, starting at the fd's position. `block`: a
// buffer for entries, aligned to 8 bytes.
template <typename Visit>
Result<void> visit_entries(int fd, std::span<std::byte> block, Visit&& visit) {
  while (true) {
    const long n = sys::getdents64(fd, block.data(), block.size());
    if (n == -EINTR) continue;
    if (sys::failed(n)) return fail(static_cast<int>(-n));
    if (n == 0) return {};
    for (long at = 0; at < n;) {
      const auto& entry = *reinterpret_cast<const DirectoryEntry*>(block.data() + at);
      at += entry.length;
      visit(entry);
    }
  }
}

}  // namespace cube::base
