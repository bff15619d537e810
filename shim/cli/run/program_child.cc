#include "shim/cli/run/program_child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/sys.h"

namespace cube::cli {
namespace {

// Forks a child. The kernel kills the child when this process ends, even if SIGKILL ends it.
pid_t fork_bound(pid_t parent) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  return 0;
}

std::uint64_t bit_of(int signal) { return std::uint64_t{1} << (signal - 1); }

// Returns the pending signals of a process.
std::uint64_t pending_of(pid_t pid) {
  if (pid <= 0) return 0;
  char path[64], text[4096];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/status", pid).out = '\0';
  const long n = base::sys::read_small_file(path, text, sizeof text);
  if (base::sys::failed(n)) return 0;
  const std::string_view all(text, static_cast<std::size_t>(n));
  constexpr std::string_view k_label = "\nShdPnd:\t";
  const std::size_t at = all.find(k_label);
  if (at == std::string_view::npos) return 0;
  std::uint64_t mask = 0;
  std::from_chars(all.data() + at + k_label.size(), all.data() + all.size(), mask, 16);
  return mask;
}

// Closes this process's copies of the program's pipes, so that the process at the other end notices
// when the program closes them.
void let_go(bool keeps_stdout) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  dup2(nothing, STDIN_FILENO);
  if (!keeps_stdout) dup2(nothing, STDOUT_FILENO);
  close_fds_from(STDERR_FILENO + 1);
}

class Supervisor {
 public:
  Supervisor() {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    // If SIGCHLD were ignored, the kernel would reap the children, and wait() would find none.
    sigaction(SIGCHLD, &action, &child_action_);
    sigfillset(&all_);
    sigprocmask(SIG_SETMASK, &all_, &mask_);
  }
  ~Supervisor() {
    end(witness_);
    // Drops pending signals, which the program has already received.
    while (drop(all_)) {
    }
    sigaction(SIGCHLD, &child_action_, nullptr);
    sigprocmask(SIG_SETMASK, &mask_, nullptr);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  bool start(const std::function<int()>& exec) {
    const pid_t self = getpid();
    program_ = fork_bound(self);
    if (program_ == 0) {
      sigaction(SIGCHLD, &child_action_, nullptr);
      sigprocmask(SIG_SETMASK, &mask_, nullptr);
      _exit(exec());
    }
    if (program_ > 0) witness_ = start_witness();
    return program_ > 0;
  }

  int wait(const Tick& tick) {
    std::uint64_t next = base::monotonic_ns() + tick.seconds * base::k_ns_per_s;
    for (;;) {
      if (const std::optional<int> status = reap()) return *status;
      siginfo_t info{};
      if (sigtimedwait(&all_, &info, &k_no_time) <= 0) {
        left_by_witness_ = 0;
        const std::uint64_t now = base::monotonic_ns();
        if (tick.seconds != 0 && now >= next) {
          next = now + tick.seconds * base::k_ns_per_s;
          tick.run();
          continue;
        }
        const std::uint64_t rest = next - std::min(now, next);
        const timespec patience{static_cast<time_t>(rest / base::k_ns_per_s),
                                static_cast<long>(rest % base::k_ns_per_s)};
        if ((tick.seconds != 0 ? sigtimedwait(&all_, &info, &patience)
                               : sigwaitinfo(&all_, &info)) <= 0)
          continue;
      }
      if (info.si_signo != SIGCHLD) hand_on(info);
    }
  }

 private:
  static constexpr timespec k_no_time{};

  static bool drop(const sigset_t& signals) {
    return sigtimedwait(&signals, nullptr, &k_no_time) > 0;
  }

  // Starts a new witness. The new witness is the youngest process of the group, so the kernel
  // signals the witness before this process.
  static pid_t start_witness() {
    const pid_t child = fork_bound(getpid());
    if (child != 0) return child;
    close_fds_from(0);
    prctl(PR_SET_NAME, "cubeshim-group");
    while (true) pause();
  }

  static void end(pid_t witness) {
    if (witness <= 0) return;
    kill(witness, SIGKILL);
    waitpid(witness, nullptr, 0);
  }

  // Returns true if the signal that this process has just received was sent to the whole group.
  // Then removes the signal from the witness. The kernel signals a group before or after a fork,
  // never during a fork. So if only the old witness has a signal pending, the signal has also
  // reached the program and this process.
  bool take_from_witness(int signal) {
    const std::uint64_t bit = bit_of(signal);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    bool is_taken = (left_by_witness_ & bit) != 0;
    for (bool is_again = true; is_again && (pending_of(witness_) & bit) != 0;) {
      const pid_t old = std::exchange(witness_, start_witness());
      // True if the same signal has arrived again, either while the first was still pending in the
      // old witness, or after the new witness was started.
      is_again = drop(only);
      const std::uint64_t got = pending_of(old);
      left_by_witness_ |= got & ~pending_of(witness_);
      end(old);
      is_taken = true;
    }
    left_by_witness_ &= ~bit;
    return is_taken;
  }

  void hand_on(const siginfo_t& info) {
    if (take_from_witness(info.si_signo)) return;
    // A signal from the program to this process is not meant for the program.
    if (info.si_code > 0 || info.si_pid == program_) return;
    // Some senders signal the processes of a group one by one, so wait for the witness's signal.
    constexpr timespec k_moment{0, 10'000'000};
    nanosleep(&k_moment, nullptr);
    if (!take_from_witness(info.si_signo)) kill(program_, info.si_signo);
  }

  // Returns the status of the program, if it has ended.
  std::optional<int> reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (pid == witness_ && !WIFSTOPPED(status)) witness_ = -1;
      if (pid != program_) continue;
      if (!WIFSTOPPED(status)) return status;
      // If SIGSTOP has stopped the program, this command does not stop. A process that stops the
      // program by its PID will also continue it by its PID.
      const int signal = WSTOPSIG(status);
      if (signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) stop(signal);
    }
    return {};
  }

  void stop(int signal) {
    struct sigaction before {};
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, &before);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    sigprocmask(SIG_BLOCK, &only, nullptr);
    sigaction(signal, &before, nullptr);
  }

  struct sigaction child_action_ {};
  sigset_t all_{}, mask_{};
  pid_t program_ = -1, witness_ = -1;
  // Signals that earlier witnesses have received. The program has received these signals, too. In
  // this process, they are pending.
  std::uint64_t left_by_witness_ = 0;
};

}  // namespace

void close_fds_from(int first) {
  if (!base::sys::failed(base::sys::raw(SYS_close_range, first, ~0U, 0))) return;
  // The kernel is older than Linux 5.9.
  constexpr int k_usual_limit = 65536;
  for (int fd = first; fd < k_usual_limit; ++fd) close(fd);
}

std::optional<int> run_in_child(const std::function<int()>& exec, bool keeps_stdout,
                                const Tick& tick) {
  Supervisor supervisor;
  if (!supervisor.start(exec)) return {};
  let_go(keeps_stdout);
  return supervisor.wait(tick);
}

int shell_status(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

int end_alike(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return shell_status(wait_status);
  const int signal = WTERMSIG(wait_status);
  prctl(PR_SET_DUMPABLE, 0);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
  kill(getpid(), signal);
  // The signal has not ended this process, because it is the first process of a container.
  return shell_status(wait_status);
}

}  // namespace cube::cli
