// Copies a packed file into a kernel file. Used for a file that cannot be served from memory,
// because the file is too large or there is no room. The copy has the bytes, size, mode and mtime
// of the packed file, but its own inode and owner. The copy uses memory until it is closed.
// Thread-safe and async-signal-safe.
#pragma once

#include "cache/pack/pack_mount.h"

namespace cube::cache {

// The copy is open for reading only, with O_CLOEXEC and O_PATH if `flags` has them. EIO: the file
// is damaged in the pack.
base::Result<base::UniqueFd> copy_of_packed(const PackMount& mount,
                                            const PackMount::Content& content, int flags);

// Copies the file at an absolute path, in which links are followed. ENOENT, EISDIR: as
// PackMount::read.
base::Result<base::UniqueFd> open_copy_of_packed(const PackMount& mount, std::string_view path,
                                                 int flags);

}  // namespace cube::cache
