// The calls that ask of a name and are answered from its record. Everything else is left to libc.
// Thread safety: all of it; a hit is async-signal-safe.
#pragma once

#include <climits>
#include <cstddef>
#include <optional>

#include "shim/path/path_filter.h"
#include "shim/process/process.h"

namespace cube::shim {

// What memory knows of a path.
using Known = cache::MountMetadata::Says;

// The stat of a path from its record, from the names of a mount, or of a name of our own.
// `no_follow`: of a link itself.
struct StatWish {
  bool no_follow = false, with_mount = false;
};
Known stat_from_record(int dir, const char* path, const StatWish& wish, cache::FileStat& stat,
                       bool* may_be_read = nullptr);
// access(F_OK or R_OK) of a file whose record is there, or of a name that is not. `mode` as of
// access(2).
Known access_from_record(int dir, const char* path, int mode);

// readlink(2): bytes, or -errno. Nothing: memory does not know the link.
std::optional<long> readlink_from_record(int dir, const char* path, char* to, std::size_t n);
// realpath(3), of what is there. False: libc is to find out.
bool realpath_from_record(const char* path, char (&to)[PATH_MAX]);

}  // namespace cube::shim
