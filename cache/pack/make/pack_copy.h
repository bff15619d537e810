// A kernel file with the bytes of a packed one, for what cannot be served from memory: too large
// for the cache, or no room. Its bytes, size, mode and mtime are right; its inode and owner are the
// copy's. It takes memory until it is closed. Thread safety: all of it; async-signal-safe.
#pragma once

#include "cache/pack/pack_mount.h"

namespace cube::cache {

// Open for reading only, with the program's O_CLOEXEC and O_PATH. EIO: the pack is damaged there.
base::Result<base::UniqueFd> copy_of_packed(const PackMount& mount,
                                            const PackMount::Content& content, int flags);

// The file of an absolute path, links followed. ENOENT, EISDIR: as PackMount::read.
base::Result<base::UniqueFd> open_copy_of_packed(const PackMount& mount, std::string_view path,
                                                 int flags);

}  // namespace cube::cache
