// Finds out whether this process may have threads with their own fd table in a sandbox, which may
// kill the process for a system call. Some system calls are made by such threads but not by the
// program's own reads. They are tried in a child, which the sandbox then kills instead of the
// program. Thread-safe.
#pragma once

namespace cube::prefetch {

// The trial itself makes a clone: see base::is_clone_known_to_be_allowed().

// Returns 0: all calls may be made. An errno: close_range(CLOSE_RANGE_UNSHARE) is refused.
// k_killed: a call kills, or no child could be made. with_cluster: includes the calls of the thread
// that has sockets. The program's waits, its SIGCHLD handler and its tracer do not see the child,
// and no fork handler runs.
constexpr int k_killed = -1;
enum class ThreadCalls { common, with_cluster };
int try_calls_of_threads(ThreadCalls calls = ThreadCalls::common);
// True if an earlier trial has shown that the calls are allowed. Makes no new trial.
bool are_known_to_be_allowed(ThreadCalls calls);

}  // namespace cube::prefetch
