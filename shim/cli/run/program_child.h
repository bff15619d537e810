// Runs a program as a child of this command, which waits for the end of the program. To the process
// that started the command, the command and the program look like one process. Signals to the
// command reach the program, and the command stops, continues and ends when the program does. If
// the command is the first process of a container, it also reaps orphaned processes.
//
// The terminal and other senders (kill(-group), a service manager, Slurm) send their signals to the
// whole process group. Such a signal has already reached the program and must not be passed on. To
// detect such signals, a third process of the group, the witness, keeps its signals pending. If the
// witness lacks a signal, the signal was sent to the command alone. As in any process, two equal
// signals that arrive at almost the same time can become one. SIGKILL for the command kills the
// program; SIGSTOP cannot be passed on. Thread safety: the process must have only one thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>

namespace cube::cli {

// A function that this process calls at intervals during the wait.
struct Tick {
  unsigned seconds = 0;  // 0: never
  std::function<void()> run = {};
};

// Runs `exec` in a child. If `exec` returns, the child exits with its result. Returns the status of
// wait(), or nothing if no child could be made. Closes all fds of this process except stderr (and
// stdout, if `keeps_stdout`), so that only the program has them.
std::optional<int> run_in_child(const std::function<int()>& exec, bool keeps_stdout,
                                const Tick& tick = {});

void close_fds_from(int first);

// Returns the status in the shell's form: the exit status, or 128 plus the number of the signal.
int shell_status(int wait_status);
// Ends this process in the same way as the child. If a signal ended the child, raises this signal,
// but without a core dump. Otherwise returns the exit status to use.
int end_alike(int wait_status);

}  // namespace cube::cli
