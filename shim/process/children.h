// Children that end. One that has never attached may have changed names without telling (a static
// program, a tool with a cleaned environment): when it is reaped, the names of this job are
// revalidated at their next use. Thread safety: all of it; async-signal-safe, keeps errno.
#pragma once

#include <csignal>

namespace cube::shim::children {

// A result of wait4 and its kin. `status` is what it has written.
void note_waited(long result, int status);
// The same of waitid.
void note_waited(long result, const siginfo_t& info);
// Some child of libc's own has ended (system, pclose).
void note_ended();

}  // namespace cube::shim::children
