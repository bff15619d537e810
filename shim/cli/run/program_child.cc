#include "shim/cli/run/program_child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <ctime>
#include <string_view>

#include "cache/base/sys.h"

namespace cube::cli {
namespace {

// Forks a child that dies with this process, however this one ends.
pid_t fork_bound(pid_t parent) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  return 0;
}

// True if the process has this signal pending.
bool has_pending(pid_t pid, int signal) {
  char path[64], text[4096];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/status", pid).out = '\0';
  const long n = base::sys::read_small_file(path, text, sizeof text);
  if (base::sys::failed(n)) return false;
  const std::string_view all(text, static_cast<std::size_t>(n));
  constexpr std::string_view k_label = "\nShdPnd:\t";
  const std::size_t at = all.find(k_label);
  if (at == std::string_view::npos) return false;
  std::uint64_t mask = 0;
  std::from_chars(all.data() + at + k_label.size(), all.data() + all.size(), mask, 16);
  return (mask >> (signal - 1) & 1) != 0;
}

// Lets go of pipes: if the program closes one, the process at the other end must see that.
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
    // A process that ignores SIGCHLD has no child to wait for.
    sigaction(SIGCHLD, &action, &child_action_);
    sigfillset(&all_);
    sigprocmask(SIG_SETMASK, &all_, &mask_);
  }
  ~Supervisor() {
    end_witness();
    // Drops the signals that the program has had.
    constexpr timespec k_no_time{};
    while (sigtimedwait(&all_, nullptr, &k_no_time) > 0) {
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
    if (program_ > 0) start_witness();
    return program_ > 0;
  }

  int wait() {
    for (;;) {
      if (const std::optional<int> status = reap()) return *status;
      siginfo_t info{};
      if (sigwaitinfo(&all_, &info) > 0 && info.si_signo != SIGCHLD) hand_on(info);
    }
  }

 private:
  // Starts the youngest process of the group, so that the kernel reaches it before this one.
  void start_witness() {
    witness_ = fork_bound(getpid());
    if (witness_ != 0) return;
    close_fds_from(0);
    prctl(PR_SET_NAME, "cubeshim-group");
    while (true) pause();
  }

  void end_witness() const {
    if (witness_ <= 0) return;
    kill(witness_, SIGKILL);
    waitpid(witness_, nullptr, 0);
  }

  void hand_on(const siginfo_t& info) {
    // The kernel signals the whole group. If the program signals the group, it means the process
    // that started it, not itself.
    const bool is_from_process = info.si_code <= 0;
    if (is_from_process && info.si_pid == program_) return;
    // Some senders signal one process after another.
    constexpr timespec k_moment{0, 10'000'000};
    if (is_from_process) nanosleep(&k_moment, nullptr);
    if (witness_ > 0 && has_pending(witness_, info.si_signo)) {
      end_witness();
      start_witness();
    } else if (is_from_process) {
      kill(program_, info.si_signo);
    }
  }

  // The status of the program, if it has ended.
  std::optional<int> reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (pid == witness_ && !WIFSTOPPED(status)) witness_ = -1;
      if (pid != program_) continue;
      if (!WIFSTOPPED(status)) return status;
      // Not for SIGSTOP: a process that stops the program by its pid also continues it by its pid.
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
};

}  // namespace

void close_fds_from(int first) {
  if (!base::sys::failed(base::sys::raw(SYS_close_range, first, ~0U, 0))) return;
  // Before Linux 5.9.
  constexpr int k_usual_limit = 65536;
  for (int fd = first; fd < k_usual_limit; ++fd) close(fd);
}

std::optional<int> run_in_child(const std::function<int()>& exec, bool keeps_stdout) {
  Supervisor supervisor;
  if (!supervisor.start(exec)) return {};
  let_go(keeps_stdout);
  return supervisor.wait();
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
  // The first process of a container does not die from it.
  return shell_status(wait_status);
}

}  // namespace cube::cli
