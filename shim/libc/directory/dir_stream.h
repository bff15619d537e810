// Streams over directories whose entries are ours, for functions of libc that open directories by
// internal calls. Only for the files of this folder. Thread safety: as libc's.
#pragma once

#include <dirent.h>

#include <optional>

namespace cube::shim {

// Returns libc's stream over the fd, or null with errno set, in which case the fd is closed.
// Returns null for no fd.
DIR* stream_over(int fd);
// Returns a stream over a directory of a mount whose listing may be in memory, or null with errno
// set. Returns nothing if libc must open the directory. `path` is relative to `dir`.
std::optional<DIR*> open_mount_stream(int dir, const char* path);

}  // namespace cube::shim
