// A high fd of the region's file, kept for the next mapping of the region. The program may close
// this fd, or open a file of its own under it. So after mapping through the fd, check that it still
// refers to the region. Otherwise, discard the mapping and call forget(). Thread-safe and
// async-signal-safe.
#pragma once

#include "cache/region/region.h"

namespace cube::shim::region_fd {

// Returns the kept fd, or a negative number if there is none.
int kept();
// Like kept(), but opens an fd if there is none. Returns a negative number if that fails.
int get(cache::Region& region);
// Keeps a duplicate of `fd` if no fd is kept yet. Returns the kept fd, or a negative number if the
// duplicate cannot be made.
int keep(int fd);
// Forgets `fd`, which no longer refers to the region.
void forget(int fd);
// Closes the kept fd. Call this before fds are listed.
void drop();

}  // namespace cube::shim::region_fd
