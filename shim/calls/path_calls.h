// The calls that ask of a name and are answered from its record. Everything else is left to libc.
// Thread safety: all of it; a hit is async-signal-safe.
#pragma once

#include "shim/path_filter.h"
#include "shim/process.h"

namespace cube::shim {

// What memory knows of a path.
using Known = cache::MountNames::Says;

// The stat of a path from its record, from the names of a mount, or of a name of our own. `no_follow`: of a link itself.
struct StatWish {
  bool no_follow = false, with_mount = false;
};
Known stat_from_record(int dir, const char* path, const StatWish& wish, cache::FileStat& stat, bool* may_be_read = nullptr);
// access(F_OK or R_OK) of a file whose record is there, or of a name that is not. `mode` as of access(2).
Known access_from_record(int dir, const char* path, int mode);

}  // namespace cube::shim
