// Finds out whether a sandbox allows this process to have threads with their own fd table. Such
// threads make some system calls that the program's own reads do not make, and a sandbox can kill a
// process for such a call. So these calls are tried in a child, which the sandbox then kills
// instead of the program. Thread-safe.
#pragma once

namespace cube::prefetch {

// The trial itself makes a clone: see base::is_clone_known_to_be_allowed().

// Returns 0 if all calls are allowed, an errno if close_range(CLOSE_RANGE_UNSHARE) is refused, or
// k_killed if a call kills the process or no child could be made. with_cluster: includes the calls
// of the thread that has sockets. The program's waits, its SIGCHLD handler and its tracer do not
// see the child, and no fork handler runs.
constexpr int k_killed = -1;
enum class ThreadCalls { common, with_cluster };
int try_calls_of_threads(ThreadCalls calls = ThreadCalls::common);
// Returns true if an earlier trial has shown that the calls are allowed. Makes no new trial.
bool are_known_to_be_allowed(ThreadCalls calls);

}  // namespace cube::prefetch
