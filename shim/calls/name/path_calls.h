// Calls that ask about a path of a mount and are answered from its record; all others are left to
// libc. unmounted_paths.h answers for paths that no mount has. Thread-safe; a hit is
// async-signal-safe.
#pragma once

#include <climits>
#include <cstddef>
#include <optional>

#include "shim/path/path_filter.h"
#include "shim/process/process.h"

namespace cube::shim {

// What the cache knows about a path.
using Known = cache::MountMetadata::Says;

// Answers the stat of a path from its record, from the metadata of a mount, or as one of our paths.
// `no_follow`: the stat of a link itself.
struct StatWish {
  bool no_follow = false, with_mount = false;
};
Known stat_from_record(int dir, const char* path, const StatWish& wish, cache::FileStat& stat,
                       bool* may_be_read = nullptr);
// Answers access(F_OK or R_OK) for a cached file, or for a negative entry. `mode` is that of
// access(2).
Known access_from_record(int dir, const char* path, int mode);

// readlink(2): returns bytes, or -errno. Returns nothing if memory does not know the link.
std::optional<long> readlink_from_record(int dir, const char* path, char* to, std::size_t n);
// realpath(3) of an existing path. Returns false if libc must find out.
bool realpath_from_record(const char* path, char (&to)[PATH_MAX]);

}  // namespace cube::shim
