// The kernel fetches parts of a file into its own pages while we do something else. Without pages
// (FUSE with direct I/O) each part would come twice, so keeps_pages() is asked first. Thread
// safety: all of it, by raw system calls; async-signal-safe.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// FUSE and NFS are asked for that much at a time. By plain reads the kernel asks for the next part
// when the one before is there, and for one behind the last.
inline constexpr std::uint64_t k_one_readahead = 128 << 10;  // bytes

// False: a shared mapping of the file is refused.
inline bool keeps_pages(int fd) {
  const long page = sys::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
  if (sys::failed(page)) return false;
  sys::munmap(reinterpret_cast<void*>(page), 1);
  return true;
}

// Asks for these bytes, all parts at once, and waits for none. An error shows itself in the read
// that follows.
inline void ask_for_pages(int fd, std::uint64_t at, std::uint64_t bytes) {
  for (const std::uint64_t end = at + bytes; at < end; at += k_one_readahead)
    sys::raw(SYS_readahead, fd, static_cast<long>(at),
             static_cast<long>(std::min(k_one_readahead, end - at)));
}

}  // namespace cube::base
