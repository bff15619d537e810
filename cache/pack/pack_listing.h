// The listing of a directory of a pack. It costs one read of the pack, and one more where the
// directory above has not been listed before (the inode of ".."). Thread safety: all of it;
// async-signal-safe.
#pragma once

#include "cache/pack/pack_mount.h"
#include "cache/record/listing.h"

namespace cube::cache {

// `path` is absolute; `follows`: a link at its end is followed. ENOENT, ENOTDIR, EIO. `with_names`:
// else there are no entries. To be ended by release().
base::Result<Listing*> list_packed(const PackMount& mount, std::string_view path, bool follows,
                                   bool with_names);

}  // namespace cube::cache
