// The transitions of this process: start, loss of rights, sandbox, end. Forks are in fork.h. Each
// transition changes the state in process.h and informs every part of the shim that depends on the
// state. Thread safety: call start() once; any thread may call the other functions.
#pragma once

#include "shim/process/process.h"

namespace cube::shim::lifecycle {

// The constructor calls this. If `speaks` is true, this process writes the report of the job when
// it ends.
void start(const base::Config& config, const base::ProcessId& job, bool speaks);

// Call this before a call that changes permissions or the meaning of paths, if process::disable()
// follows. Materializes open files, because the process may not be able to open them again later.
// Attaches to an existing region. A region is found by the user's name, so after the call the
// process might not find the region to which it must report its changes. Also leaves the view.
void prepare_identity(const char* call);
// Call this instead of process::disable() if the program's call has failed or has changed nothing.
// Returns the process to its view.
void keep_identity();
// Call this before the program enters a sandbox (seccomp), which may kill the process for a system
// call that the program itself would not make. Materializes served files, writes the report and
// releases the cache. From then on, the shim leaves every call to libc.
void seal();

// Call this before the program closes its stderr stream, as coreutils (timeout, nice ...) do before
// they end. If the report goes to stderr, writes it now, because a later report could not reach the
// stream.
void stderr_ends();
// Call this once, at exit or _exit. Writes the report if this process speaks for the job, and
// releases the cache.
void leave();

}  // namespace cube::shim::lifecycle
