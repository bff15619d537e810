// The file of the profiler (raw_format.h), written by the process at its end. Thread safety: one thread at a time; allocates
// nothing, for a signal handler may end the program.
#pragma once

#include "cache/base/config.h"
#include "shim/profile/tables.h"

namespace cube::shim::profile {

// At the start: the name from the settings, made absolute, for the program may go elsewhere.
void note_raw_file(const base::Config& config);
// Nothing where no call was recorded.
void write_raw(Tables& tables, const base::Config& config);

}  // namespace cube::shim::profile
