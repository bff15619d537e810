// Makes the kernel fetch parts of a file into its own pages in the background. If the kernel keeps
// no pages (FUSE with direct I/O), each part would be fetched twice, so callers check keeps_pages()
// first. Thread-safe, by raw system calls; async-signal-safe.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// The size of one request to FUSE and NFS. For plain reads the kernel requests a part only after
// the previous one has arrived, and it requests one more after the last.
inline constexpr std::uint64_t k_one_readahead = 128 << 10;  // bytes

// False: a shared mapping of the file is refused.
inline bool keeps_pages(int fd) {
  const long page = sys::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
  if (sys::failed(page)) return false;
  sys::munmap(reinterpret_cast<void*>(page), 1);
  return true;
}

// Requests all parts of these bytes in parallel, without waiting. The read that follows reports an
// error.
inline void ask_for_pages(int fd, std::uint64_t at, std::uint64_t bytes) {
  for (const std::uint64_t end = at + bytes; at < end; at += k_one_readahead)
    sys::raw(SYS_readahead, fd, static_cast<long>(at),
             static_cast<long>(std::min(k_one_readahead, end - at)));
}

}  // namespace cube::base
