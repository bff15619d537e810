// The transitions of this process: its start, a loss of rights, a sandbox, its end; forks are in
// fork.h. The transitions change the state in process.h, and inform every part of the shim that
// depends on it. Thread safety: call start once; any thread may call the rest.
#pragma once

#include "shim/process/process.h"

namespace cube::shim::lifecycle {

// Called once, from the constructor. The one process that `speaks` for its job writes the report
// when it ends.
void start(const base::Config& config, const base::ProcessId& job, bool speaks);

// Call it before a call that changes permissions or the meaning of paths, if process::disable()
// follows. Open files are materialized, because the process may not be able to open them again. The
// region is found by the user's name, so a process without a region could not report its changes
// afterwards.
void prepare_identity(const char* call);
// Call it before the program puts itself into a sandbox (seccomp), which may kill the process for
// any call that the program itself does not make. It materializes served files, writes the report,
// releases the cache, and from then on leaves every call to libc alone.
void seal();

// The program closes its stderr stream, as coreutils (timeout, nice ...) do before they end. So
// this is the last chance to report there.
void stderr_ends();
// Reports if this process speaks for the job, and releases the cache. Called once, at exit or
// _exit.
void leave();

}  // namespace cube::shim::lifecycle
