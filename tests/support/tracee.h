// A child under ptrace. It can run to the next system call or for one instruction, and can be
// killed at that point.
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "tests/support/child.h"

namespace cube::tests {

class Tracee {
 public:
  // The child stops before `body` and at each raise(SIGSTOP) in it.
  template <typename Body>
  explicit Tracee(Body&& body)
      : child_([&] {
          ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
          raise(SIGSTOP);
          return body();
        }) {
    wait_for_stop();
    ptrace(PTRACE_SETOPTIONS, child_.pid(), nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  }
  // Returns false if the child has ended; `exit_status` then says how.
  bool to_system_call() { return resume(PTRACE_SYSCALL); }
  bool step() { return resume(PTRACE_SINGLESTEP); }
  // Runs this many instructions. Returns true if the child reached a raise(SIGSTOP) or its end
  // earlier.
  bool step_on(long steps) {
    for (long i = 0; i < steps; ++i) {
      if (!step() || is_at_raise()) return true;
    }
    return false;
  }
  // Runs to the next raise(SIGSTOP), or to its end.
  bool to_stop() {
    while (resume(PTRACE_CONT)) {
      if (stopped_by_ == SIGSTOP) return true;
    }
    return false;
  }
  // Runs for about that long and then stops. Returns true if the child reached a raise(SIGSTOP)
  // earlier.
  bool run_for(std::uint64_t ns) {
    if (ptrace(PTRACE_CONT, child_.pid(), nullptr, 0) != 0) return true;
    const timespec pause{static_cast<time_t>(ns / 1'000'000'000),
                         static_cast<long>(ns % 1'000'000'000)};
    nanosleep(&pause, nullptr);
    int status = 0;
    if (waitpid(child_.pid(), &status, WNOHANG) == child_.pid()) return true;
    child_.send(SIGUSR1);  // stops the child for the tracer, at any point
    wait_for_stop();
    return is_at_raise();
  }
  bool is_alive() const { return alive_; }
  bool is_at_raise() const { return stopped_by_ == SIGSTOP; }
  int exit_status() const { return exit_status_; }

  // Returns true if the child is stopped at the entry of this system call; info_ then has the
  // arguments.
  bool at_entry_of(long number) {
    return info().op == PTRACE_SYSCALL_INFO_ENTRY && static_cast<long>(info_.entry.nr) == number;
  }
  std::uint64_t argument(int n) const { return info_.entry.args[n]; }
  // Runs to the n-th entry of this system call.
  bool to_entry_of(long number, int n = 1) {
    while (to_system_call()) {
      if (at_entry_of(number) && --n == 0) return true;
    }
    return false;
  }
  bool to_exit_of(long number, int n = 1) { return to_entry_of(number, n) && to_system_call(); }
  // The child receives the signal when it continues, by to_stop().
  void send(int signal) { child_.send(signal); }
  void kill() {
    child_.kill();
    alive_ = false;
  }

 private:
  const __ptrace_syscall_info& info() {
    info_ = {};
    ptrace(PTRACE_GET_SYSCALL_INFO, child_.pid(), sizeof info_, &info_);
    return info_;
  }
  bool resume(__ptrace_request how) {
    if (!alive_) return false;
    const long signal =
        stopped_by_ == SIGTRAP || stopped_by_ == (SIGTRAP | 0x80) || stopped_by_ == SIGSTOP
            ? 0
            : stopped_by_;
    if (ptrace(how, child_.pid(), nullptr, signal) != 0) return alive_ = false;
    return wait_for_stop();
  }
  bool wait_for_stop() {
    int status = 0;
    while (waitpid(child_.pid(), &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSTOPPED(status)) {
      stopped_by_ = WSTOPSIG(status);
      return true;
    }
    exit_status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return alive_ = false;
  }

  Child child_;
  bool alive_ = true;
  int stopped_by_ = 0;
  int exit_status_ = -1000;
  __ptrace_syscall_info info_{};
};

}  // namespace cube::tests
