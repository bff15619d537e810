// May this process have threads with an fd table of their own where there is a sandbox, which may
// kill for a system call? What the threads call, and the program's own reads do not, is tried in a
// child, which the sandbox kills in the place of the program. Thread safety: all of it.
#pragma once

namespace cube::prefetch {

// The trial is itself a clone: base::is_clone_known_to_be_allowed().

// 0: all calls may be made. An errno: close_range(CLOSE_RANGE_UNSHARE) is refused. k_killed: a call
// kills, or there is no child. with_cluster: those of the thread that has sockets, too. The
// program's waits, its handler of SIGCHLD and its tracer do not see the child, and no handler for
// forks runs.
constexpr int k_killed = -1;
enum class ThreadCalls { common, with_cluster };
int try_calls_of_threads(ThreadCalls calls = ThreadCalls::common);
// Without a trial: one has found it out.
bool are_known_to_be_allowed(ThreadCalls calls);

}  // namespace cube::prefetch
