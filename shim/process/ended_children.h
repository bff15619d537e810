// Reports children that end. A child that has never attached may have changed metadata silently (a
// static program, a tool with a cleaned environment): when it is reaped, the metadata of this job
// is revalidated at its next use. Thread-safe and async-signal-safe, keeps errno.
#pragma once

#include <csignal>

namespace cube::shim::ended_children {

// Call it with the result of wait4 or a similar call. `status` is what the call has written.
void note_waited(long result, int status);
// Like the above, but for waitid.
void note_waited(long result, const siginfo_t& info);
// Call it when a child that libc itself has started has ended (system, pclose, wordexp).
void note_ended();

}  // namespace cube::shim::ended_children
