// Lists a directory of a pack. A listing costs one read of the pack. If the parent directory has
// not been listed before, a second read finds the inode of "..". Thread-safe and async-signal-safe.
#pragma once

#include "cache/pack/pack_mount.h"
#include "cache/record/listing.h"

namespace cube::cache {

// `path` is absolute. `follows`: a link at the end of the path is followed. If `with_names` is
// false, the listing has no entries. The caller must end the listing by release(). Errors: ENOENT,
// ENOTDIR, EIO.
base::Result<Listing*> list_packed(const PackMount& mount, std::string_view path, bool follows,
                                   bool with_names);

}  // namespace cube::cache
