// Processes for tests: a forked child that runs a function, and a pipe through which processes
// signal each other. No sleeps.
#pragma once

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cache/region/life/life_lock.h"

namespace cube::tests {

// Reports a failure in the body of a child, where EXPECT_* would be lost, and ends the child with
// status 1.
#define CHILD_CHECK(condition)                                                            \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "child: %s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                           \
    }                                                                                     \
  } while (false)

// A child process. If the owner has not waited for it, the destructor kills it.
class Child {
 public:
  Child() = default;
  // The result of `body` is the child's exit status.
  template <typename Body>
  explicit Child(Body&& body) {
    std::fflush(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // getppid() returns 0 if the parent is in another pid namespace.
    if (const pid_t now = getppid(); now != parent && now != 0) _exit(99);
    cache::close_life_lock_after_fork();
    _exit(body());
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&& other) noexcept {
    if (this != &other) {
      kill();
      pid_ = std::exchange(other.pid_, -1);
    }
    return *this;
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  // The exit status, or -signal.
  int wait() {
    int status = 0;
    if (pid_ <= 0 || waitpid(std::exchange(pid_, -1), &status, 0) < 0) return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Stops the child with SIGSTOP, and waits until it has stopped.
  void stop() const {
    int status = 0;
    send(SIGSTOP);
    waitpid(pid_, &status, WUNTRACED);
  }
  void kill() {
    if (pid_ <= 0) return;
    send(SIGKILL);
    wait();
  }
  // Kills the child but does not wait for it, so that a zombie is left.
  void kill_without_reaping() const {
    send(SIGKILL);
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_ = -1;
};

template <typename Body>
int run_in_child(Body&& body) {
  return Child(std::forward<Body>(body)).wait();
}

// A gate through which one process signals another. It must be made before the fork.
class Gate {
 public:
  Gate() {
    if (pipe(fds_) != 0) std::perror("pipe");
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    close_side(0);
    close_side(1);
  }
  void give(int n = 1) {
    for (; n > 0; --n) {
      if (write(fds_[1], "x", 1) != 1) std::perror("Gate::give");
    }
  }
  bool take(int n = 1) {
    char c = 0;
    for (; n > 0; --n) {
      // If the process that should signal has failed, the test must fail and not hang.
      pollfd waiting{fds_[0], POLLIN, 0};
      if (poll(&waiting, 1, 30'000) != 1 || read(fds_[0], &c, 1) != 1) return false;
    }
    return true;
  }

 private:
  void close_side(int i) {
    if (fds_[i] >= 0) close(fds_[i]);
    fds_[i] = -1;
  }
  int fds_[2] = {-1, -1};
};

// Waits until /proc shows the first thread of a process as a zombie.
inline void wait_for_zombie(pid_t pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  while (true) {
    std::FILE* const file = std::fopen(path, "r");
    if (file == nullptr) return;
    text[std::fread(text, 1, sizeof text - 1, file)] = '\0';
    std::fclose(file);
    if (std::strstr(text, ") Z ") != nullptr) return;
  }
}

// Never returns; for a child that waits to be killed.
inline int wait_for_death() {
  while (true) pause();
}

}  // namespace cube::tests
