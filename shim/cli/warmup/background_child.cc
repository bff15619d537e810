#include "shim/cli/warmup/background_child.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "cache/base/error_text.h"
#include "shim/cli/complaint.h"

namespace cube::cli {

std::optional<int> BackgroundChild::split(pid_t& pid) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return complain(1, fmt::format("cannot go to the background: {}", base::text_of_error(errno)));
  base::UniqueFd hear(ends[0]), tell(ends[1]);
  std::fflush(nullptr);
  pid = fork();
  if (pid < 0)
    return complain(1, fmt::format("cannot go to the background: {}", base::text_of_error(errno)));
  if (pid == 0) {
    tell_ = std::move(tell);
    return std::nullopt;
  }
  tell = base::UniqueFd();
  char byte = 0;
  ssize_t n = 0;
  while ((n = ::read(hear.get(), &byte, 1)) < 0 && errno == EINTR) {
  }
  if (n == 1) return 0;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  pid = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void BackgroundChild::ready() {
  setsid();
  const base::UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  dup2(nothing.get(), STDIN_FILENO);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (isatty(fd) != 0) dup2(nothing.get(), fd);
  }
  const char byte = 1;
  while (::write(tell_.get(), &byte, 1) < 0 && errno == EINTR) {
  }
  tell_ = base::UniqueFd();
}

}  // namespace cube::cli
