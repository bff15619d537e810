// Runs a program as a child of this command, which waits to see how the program ends. To the
// process that started the command, the two look like one: signals to the command reach the
// program, and the command stops, continues and ends as the program does. As the first process of a
// container, the command reaps orphaned processes.
//
// The terminal sends its signals to the whole process group, as do other senders (kill(-group), a
// service manager, Slurm). Such a signal has already reached the program. A third process of the
// group, the witness, keeps its signals pending, and so shows which signals were not for the
// command alone. As with any process, two signals of one number that come at almost the same time
// can become one. SIGKILL for the command kills the program; SIGSTOP cannot be passed on. Thread
// safety: one thread, in a process that has no other.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

namespace cube::cli {

// Called by this process at intervals while it waits.
struct Tick {
  unsigned seconds = 0;  // 0: never
  std::function<void()> run = {};
};

// Runs `exec` in a child, which exits with the result of `exec` if that returns. Returns the status
// of wait(); empty if no child could be made. Closes all fds of this process except stderr, and
// stdout if it is kept, so that only the program has them.
std::optional<int> run_in_child(const std::function<int()>& exec, bool keeps_stdout,
                                const Tick& tick = {});

void close_fds_from(int first);

// The status in the shell's form: the exit status, or 128 plus the number of the signal.
int shell_status(int wait_status);
// Ends this process as the child ended: by the same signal, but without a core. Returns the status
// to exit with.
int end_alike(int wait_status);

}  // namespace cube::cli
