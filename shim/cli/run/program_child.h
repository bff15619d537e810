// Runs a program as a child of this command, which stays to see how the program ends. To the
// process that started the command, the two look like one: a signal for the command reaches the
// program, the command stops and continues with the program, and it ends in the same way. As the
// first process of a container, the command reaps orphaned processes.
//
// The terminal sends its signals to the whole process group, and so do others (kill(-group), a
// service manager, Slurm). Such a signal has already reached the program. A third process of the
// group, which keeps its signals pending, distinguishes these from a signal for the command alone.
// As with any process, two signals of one number that come at almost the same time can become one.
// SIGKILL for the command kills the program; SIGSTOP cannot be passed on. Thread safety: one
// thread, in a process that has no other.
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

// Runs `exec` in a child, which ends with its result unless it becomes the program. Returns the
// status of wait(); empty if no child could be made. From then on all fds of this process belong to
// the program alone, except stderr, and stdout if it is kept.
std::optional<int> run_in_child(const std::function<int()>& exec, bool keeps_stdout,
                                const Tick& tick = {});

void close_fds_from(int first);

// The status in the shell's form: that of exit, or 128 plus the number of the signal.
int shell_status(int wait_status);
// Ends this process as the child ended: by the same signal, but without a core. Returns the status
// to exit with.
int end_alike(int wait_status);

}  // namespace cube::cli
