// The calls that ask of a name and are answered from its record. Everything else is left to libc.
// Thread safety: all of it; a hit is async-signal-safe.
#pragma once

#include "shim/path_filter.h"
#include "shim/process.h"

namespace cube::shim {

// Does a prefix cover it, and does this process serve files?
inline bool is_covered(int dir, const char* path, CoveredPath& covered, path_filter::Care care = path_filter::Care::quick) {
  return process::is_active() && process::owns_table() && path_filter::covers(dir, path, covered, care);
}

// A path of /proc/self/fd and the like: the kernel follows it, so the number must be a kernel file.
void materialize_named(const char* path, int dir = AT_FDCWD);

// The stat of a path from its record, or of a name of our own. `no_follow`: of a link itself.
bool stat_from_record(int dir, const char* path, bool no_follow, cache::FileStat& stat, bool with_mount = false);
// access(F_OK or R_OK) of a file whose record is there. `mode` as of access(2).
bool access_from_record(int dir, const char* path, int mode);

}  // namespace cube::shim
