// Starts the gateway (`cubeshim gateway`). The gateway is a process in its own session, and does
// not inherit the program's fds, memory, signal mask or CPU affinity. The environment of the
// gateway has only cubeshim's settings and the variables that name the store and the credentials.
// The program never gets a SIGCHLD for the gateway, and no fork handler runs. Thread safety:
// prepare() is called once, at load; start() may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace cube::cache::gateway_start {

// `command`: the path of the command `cubeshim`. `environment`: a null-terminated list, which is
// copied. Allocates.
void prepare(std::string command, const char* const* environment);
// Makes the gateway serve this region instead of the region that the environment names. Allocates.
void use_region(const std::string& directory, const std::string& name);
// Whether the gateway's environment includes this variable. `variable`: "NAME=VALUE".
bool is_passed_on(const char* variable);
// A hash of the variables that name the store and the credentials. Programs share gateways and
// objects only if their hashes are equal. Async-signal-safe.
std::uint64_t store_mark(const char* const* environment);
// Returns 0 if the gateway was started. Otherwise reports the failure to the user and returns
// ECONNREFUSED. Async-signal-safe.
int start();

}  // namespace cube::cache::gateway_start
