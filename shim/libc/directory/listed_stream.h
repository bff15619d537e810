// A stream over a directory of a mount that memory may know, for the calls of libc that open
// directories by calls of its own. For the files of this folder alone. Thread safety: as libc's.
#pragma once

#include <dirent.h>

#include <optional>

namespace cube::shim {

// The stream, or null and errno is set. Nothing: libc is to open it. `path` is relative to `dir`.
std::optional<DIR*> open_listed_stream(int dir, const char* path);

}  // namespace cube::shim
