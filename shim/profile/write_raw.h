// Writes the raw file of the profiler (raw_format.h) at the end of the process. Thread-safe, except
// note_raw_file(). Allocates nothing and uses little stack, because a signal handler may end the
// program.
#pragma once

#include "cache/base/settings/config.h"
#include "shim/profile/tables.h"

namespace cube::shim::profile {

// Call this at the start. Keeps the absolute form of the path in the settings, because the program
// may change its working directory.
void note_raw_file(const base::Config& config);
// Writes nothing if no call was recorded. Returns false if another thread is writing.
bool write_raw(Tables& tables, const base::Config& config);
// Call this in a forked child, in which a thread that was writing does not exist.
void forget_writer();

}  // namespace cube::shim::profile
