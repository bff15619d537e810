// A high fd of the region's file, kept for the next mapping of the region. The host may close it,
// or open a file of its own under that fd. So code that maps through the fd trusts the mapping only
// if the fd still refers to the region afterwards, and calls forget() if not. Thread-safe and
// async-signal-safe.
#pragma once

#include "cache/region/region.h"

namespace cube::shim::region_fd {

// Returns a negative number if there is none.
int kept();
// Like kept(), but opens one if there is none. Returns a negative number if none can be opened.
int get(cache::Region& region);
// Keeps a duplicate of `fd` unless there is one already. Returns the fd that is kept, or a negative
// number if none can be opened.
int keep(int fd);
// Forgets `fd`, which no longer refers to the region.
void forget(int fd);
// Closes the kept fd, before fds are listed.
void drop();

}  // namespace cube::shim::region_fd
