// Makes the kernel fetch parts of a file into its page cache in the background. If the kernel does
// not cache the file (FUSE with direct I/O), each part would be fetched twice, so callers check
// keeps_pages() first. Makes only raw system calls. Thread-safe; async-signal-safe.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// The size of one request that the kernel sends to FUSE or NFS. For a plain read, the kernel sends
// each request only after the previous part has arrived, and sends one request more than the read
// needs.
inline constexpr std::uint64_t k_one_readahead = 128 << 10;  // bytes

// Whether the kernel caches the pages of the file. The kernel refuses a shared mapping of a file
// that it does not cache.
inline bool keeps_pages(int fd) {
  const long page = sys::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
  if (sys::failed(page)) return false;
  sys::munmap(reinterpret_cast<void*>(page), 1);
  return true;
}

// Requests all parts of these bytes in parallel, without waiting for them. A later read of the
// bytes reports any error.
inline void ask_for_pages(int fd, std::uint64_t at, std::uint64_t bytes) {
  for (const std::uint64_t end = at + bytes; at < end; at += k_one_readahead)
    sys::raw(SYS_readahead, fd, static_cast<long>(at),
             static_cast<long>(std::min(k_one_readahead, end - at)));
}

}  // namespace cube::base
