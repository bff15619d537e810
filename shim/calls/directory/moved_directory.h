// A directory that was moved since a stream over its listing was opened, by another process or
// another node. It is looked for where it may be at little cost: under another name in the
// directory that held it, and by the same last names below a neighbour of each directory above, up
// to the prefix. Thread safety: all of it; async-signal-safe.
#pragma once

#include "cache/record/listing.h"

namespace cube::shim {

// An fd of the directory with the listing's inode; or -ENOENT: it is not found.
long open_moved_directory(const cache::Listing& listing, int flags);

}  // namespace cube::shim
