// The calls that ask of a name and are answered from its record. Everything else is left to libc.
// Thread safety: all of it; a hit is async-signal-safe.
#pragma once

#include "shim/path_filter.h"
#include "shim/process.h"

namespace cube::shim {

// The stat of a path from its record, or of a name of our own. `no_follow`: of a link itself.
bool stat_from_record(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount = false);
// access(F_OK or R_OK) of a file whose record is there. `mode` as of access(2).
bool access_from_record(int dir, const char* path, int mode);

}  // namespace cube::shim
