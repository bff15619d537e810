// The file of the profiler (raw_format.h), written by the process at its end. Thread-safe, except
// note_raw_file(). It allocates nothing and takes little stack, because a signal handler may end
// the program.
#pragma once

#include "cache/base/settings/config.h"
#include "shim/profile/tables.h"

namespace cube::shim::profile {

// Called at the start: keeps the path from the settings, made absolute, because the program may
// change its directory.
void note_raw_file(const base::Config& config);
// Writes nothing if no call was recorded. Returns false if another thread is writing.
bool write_raw(Tables& tables, const base::Config& config);
// Called in a forked child, which does not have the writing thread.
void forget_writer();

}  // namespace cube::shim::profile
