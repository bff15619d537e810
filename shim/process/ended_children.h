// Reports children that end. A child that has never attached (a static program, a tool with a
// cleaned environment) may have changed metadata silently. When such a child is reaped, the
// metadata of this job is revalidated at its next use. Thread-safe and async-signal-safe. Keeps
// errno.
#pragma once

#include <csignal>

namespace cube::shim::ended_children {

// Call this with the result of wait4 or a similar call, and with the `status` that it wrote.
void note_waited(long result, int status);
// Like note_waited above, but for waitid.
void note_waited(long result, const siginfo_t& info);
// Call this after the end of a child that libc started (system, pclose, wordexp).
void note_ended();

}  // namespace cube::shim::ended_children
