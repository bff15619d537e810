// Copies a packed file into a kernel file, if it cannot be served from memory: it is too large for
// the cache, or there is no room. Bytes, size, mode and mtime are those of the packed file; inode
// and owner are the copy's. The copy takes memory until it is closed. Thread-safe and
// async-signal-safe.
#pragma once

#include "cache/pack/pack_mount.h"

namespace cube::cache {

// The copy is open for reading only, with the program's O_CLOEXEC and O_PATH. EIO: the pack is
// damaged at that file.
base::Result<base::UniqueFd> copy_of_packed(const PackMount& mount,
                                            const PackMount::Content& content, int flags);

// Copies the file of an absolute path, links followed. ENOENT, EISDIR: as PackMount::read.
base::Result<base::UniqueFd> open_copy_of_packed(const PackMount& mount, std::string_view path,
                                                 int flags);

}  // namespace cube::cache
