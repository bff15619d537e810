// The program's mappings of served files: pages of the region itself. A small file whose record is not laid out for that
// is laid out anew at its first mapping. Holds a pin for as long as any page of a mapping may still be there.
// Thread safety: all of it; async-signal-safe. Invariant: a mapping of the region is never writable by mprotect, because
// its fd was opened read-only.
#pragma once

#include <cstddef>

#include "shim/open_file.h"

namespace cube::shim::mappings {

struct MapRequest {
  void* at;
  std::size_t length;
  int protection, flags;
  std::int64_t offset;
};

enum class MapResult {
  done,     // `result` holds the address or -errno
  not_here  // let the kernel do it, on a real file
};
MapResult map(OpenFile& file, const MapRequest& request, long& result);

// The program has unmapped or replaced these pages.
void unmapped(void* at, std::size_t length);
// Is a mapping of ours here? It is about to move to where nobody will find it again, so its pin stays for good.
bool keep_for_good(const void* at);
extern constinit std::atomic<int> g_count;
inline bool any() { return g_count.load(std::memory_order_acquire) != 0; }
// The fd of the region that is kept for the next mapping goes, where fds are listed. It is never relied on.
void drop_region_fd();
// In a forked child: the pins are the parent's. (The resident pool keeps every segment while its region lives.)
void forget_after_fork();

}  // namespace cube::shim::mappings
