// Starts the gateway, `cubeshim gateway`: a process of its own session, without the program's fds,
// memory, signal mask and CPU affinity, and with no environment but the settings of cubeshim, what
// finds the store and what proves the right to read it. The program never gets a SIGCHLD for it,
// and no handler of a fork runs. Thread safety: prepare() once, at load; start() from any thread.
#pragma once

#include <string>

namespace cube::cache::gateway_start {

// `command`: the path of the command. `environment`: a null-terminated list, of which this makes
// copies. Allocates.
void prepare(std::string command, const char* const* environment);
// Whether this variable is passed on: "NAME=VALUE".
bool is_passed_on(const char* variable);
// Returns 0, or ECONNREFUSED after it has told the user why. Async-signal-safe.
int start();

}  // namespace cube::cache::gateway_start
