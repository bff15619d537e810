// Answers queries about paths of a mount from memory. If memory has no answer, the caller asks
// libc. For paths that no mount has, see unmounted_paths.h. Thread-safe; a hit is
// async-signal-safe.
#pragma once

#include <climits>
#include <cstddef>
#include <optional>

#include "shim/path/path_filter.h"
#include "shim/process/process.h"

namespace cube::shim {

// The cache's answer about a path.
using Known = cache::MountMetadata::Says;

// Answers a stat from the path's record, from cached metadata of the mount, or from a pack or
// bucket. `no_follow` asks for the stat of the link itself.
struct StatWish {
  bool no_follow = false, with_mount = false;
};
Known stat_from_record(int dir, const char* path, const StatWish& wish, cache::FileStat& stat,
                       bool* may_be_read = nullptr);
// Answers access(2) with F_OK or R_OK for a cached file or a negative entry.
Known access_from_record(int dir, const char* path, int mode);

// Like readlink(2): returns a count of bytes or -errno. Returns nothing if the link is not in
// memory.
std::optional<long> readlink_from_record(int dir, const char* path, char* to, std::size_t n);
// Like realpath(3) of an existing path. Returns false if libc must answer.
bool realpath_from_record(const char* path, char (&to)[PATH_MAX]);

}  // namespace cube::shim
