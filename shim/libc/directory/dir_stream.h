// Streams over directories that this process answers from memory, for functions of libc that open
// directories by internal calls. Only for files in this folder. Thread safety: as libc's.
#pragma once

#include <dirent.h>

#include <optional>

namespace cube::shim {

// Makes libc's stream over the fd. If that fails, closes the fd, sets errno and returns null.
// Returns null for a negative fd.
DIR* stream_over(int fd);
// Opens a stream over a directory of a mount whose listing may be in memory. Returns null and sets
// errno if that fails. Returns nothing if libc must open the directory. `path` is relative to
// `dir`.
std::optional<DIR*> open_mount_stream(int dir, const char* path);

}  // namespace cube::shim
