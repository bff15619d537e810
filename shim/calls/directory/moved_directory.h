// Finds a directory that another process or another node has moved since a stream over its listing
// was opened. The search goes where the directory may be at little cost: under another name in the
// directory that held it, and by the same last path components below a neighbor of each directory
// above, up to the prefix. Thread safety: all of it; async-signal-safe.
#pragma once

#include "cache/record/listing.h"

namespace cube::shim {

// Returns an fd of the directory with the listing's inode, or -ENOENT if it is not found.
long open_moved_directory(const cache::Listing& listing, int flags);

}  // namespace cube::shim
