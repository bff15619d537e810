// A program as a child of this command, which stays to see how the program ends. To whoever started
// the command, the two are one process: a signal for the command reaches the program, the command
// stops and goes on with the program, and ends as it does. As the first process of a container, the
// command reaps what others leave to it.
//
// The terminal sends its signals to the whole process group, and so do others (kill(-group), a
// service manager, Slurm). The program has such a signal already. A third process of the group,
// which only keeps what it gets pending, tells these from a signal for the command alone. SIGKILL
// for the command kills the program; SIGSTOP cannot be handed on. Thread safety: one thread, of a
// process that has no other.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

namespace cube::cli {

// Runs `exec` in a child, which ends with its result unless it becomes the program. The status as
// wait has it; nothing: no child could be made. All fds of this process but stderr, and stdout if
// it is kept, are the program's alone from then on.
std::optional<int> run_in_child(const std::function<int()>& exec, bool keeps_stdout);

void close_fds_from(int first);

// As a shell has it: that of exit, or 128 and the number of the signal.
int shell_status(int wait_status);
// Ends this process as that child ended: by the same signal, but without a core. Returns the status
// to exit with.
int end_alike(int wait_status);

}  // namespace cube::cli
