#include "daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cube::lagfs {
namespace {

void leave_terminal() {
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  if (null > STDERR_FILENO) close(null);
}

}  // namespace

int run_in_background(const std::function<int(const Ready&)>& serve) {
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    fmt::print(stderr, "lagfs: cannot go to the background: {}\n", strerror(errno));
    return 1;
  }
  const pid_t child = fork();
  if (child < 0) {
    fmt::print(stderr, "lagfs: cannot go to the background: {}\n", strerror(errno));
    return 1;
  }
  if (child == 0) {
    close(pipe_fds[0]);
    setsid();
    const int code = serve([fd = pipe_fds[1]] {
      // Leaves the terminal first, so that a program that waits for the end of our output does not
      // wait for the end of the mount.
      leave_terminal();
      while (write(fd, "+", 1) < 0 && errno == EINTR) {
      }
      close(fd);
    });
    _exit(code);
  }

  close(pipe_fds[1]);
  char byte = 0;
  ssize_t got = 0;
  while ((got = read(pipe_fds[0], &byte, 1)) < 0 && errno == EINTR) {
  }
  if (got == 1) return 0;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace cube::lagfs
