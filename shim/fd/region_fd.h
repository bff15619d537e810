// A high fd of the region's file, kept for the next mapping of the region. The host may close it,
// or open a file of its own under that fd. So code that maps through the fd trusts the mapping only
// if the fd is still the region's afterwards; otherwise it calls forget(). Thread-safe and
// async-signal-safe.
#pragma once

#include "cache/region/region.h"

namespace cube::shim::region_fd {

// Negative: there is none.
int kept();
// Like kept(), but opens one if there is none. Negative: none can be opened.
int get(cache::Region& region);
// Keeps a duplicate of `fd` unless there is one already. Returns the fd that is kept; negative:
// none can be opened.
int keep(int fd);
// Forgets `fd`, which is no longer the region's.
void forget(int fd);
// Closes the kept fd, before fds are listed.
void drop();

}  // namespace cube::shim::region_fd
