// The file of the profiler (raw_format.h), written by the process at its end. Thread safety: all of
// it but note_raw_file(); allocates nothing and takes little of the stack, for a signal handler may
// end the program.
#pragma once

#include "cache/base/settings/config.h"
#include "shim/profile/tables.h"

namespace cube::shim::profile {

// At the start: the name from the settings, made absolute, for the program may go elsewhere.
void note_raw_file(const base::Config& config);
// Nothing where no call was recorded. False: another thread is at it.
bool write_raw(Tables& tables, const base::Config& config);
// In a forked child: that thread is not here.
void forget_writer();

}  // namespace cube::shim::profile
