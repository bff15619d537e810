// An fd of the region's file with a high number, kept for the next mapping of the region. The host
// may close it, or open a file of its own by that number. So whoever maps through it believes the
// mapping only if the number is still the region's afterwards, and calls forget() if it is not.
// Thread safety: all of it; async-signal-safe.
#pragma once

#include "cache/region/region.h"

namespace cube::shim::region_fd {

// Negative: there is none.
int kept();
// The same, but opens one if there is none. Negative: none can be had.
int get(cache::Region& region);
// Keeps a duplicate of `fd` unless there is one already. Returns the one that is kept; negative:
// none can be had.
int keep(int fd);
// `fd` is not the region's any more.
void forget(int fd);
// Closes it, before fds are listed.
void drop();

}  // namespace cube::shim::region_fd
