// Other processes that inherit the open files: by fork, by vfork and exec, by posix_spawn.
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cache/base/sys.h"
#include "tests/differential/actor.h"
#include "tests/differential/player.h"
#include "tests/differential/reader.h"

namespace cube::differ {
namespace {

namespace sys = base::sys;

std::string status_text(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "no child: " + error_name(errno);
  return WIFEXITED(status) ? "exit " + std::to_string(WEXITSTATUS(status))
                           : "signal " + std::to_string(WTERMSIG(status));
}

// The text that a started program wrote to the pipe at k_pipe_fd + 1.
class Output {
 public:
  Output() {
    int pair[2];
    if (sys::failed(sys::raw(SYS_pipe2, sys::arg(pair), O_CLOEXEC))) return;
    there_ = !sys::failed(sys::dup3(pair[0], k_pipe_fd, O_CLOEXEC)) &&
             !sys::failed(sys::dup3(pair[1], k_pipe_fd + 1, O_CLOEXEC));
    sys::close(pair[0]);
    sys::close(pair[1]);
  }
  ~Output() {
    sys::close(k_pipe_fd);
    sys::close(k_pipe_fd + 1);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  bool is_there() const { return there_; }
  std::string text() {
    sys::close(k_pipe_fd + 1);
    std::string all;
    char part[512];
    for (long n = 0; (n = sys::read(k_pipe_fd, part, sizeof part)) > 0;)
      all.append(part, static_cast<std::size_t>(n));
    return all;
  }

 private:
  bool there_ = false;
};

// Every third program starts with an empty environment, and so without the library.
char* const* environment(std::int64_t kind) {
  static char* const none[] = {nullptr};
  return kind % 3 == 2 ? none : environ;
}

}  // namespace

DIFFER_PLAY(fork) {
  const auto count = static_cast<std::size_t>(a[0]) + 1;
  const pid_t child = a[1] % 4 == 3 ? _Fork() : fork();
  if (child == 0) {
    p.enter_child();
    // Raises the limit of fds: a child without two free fds cannot attach, so its changes would not
    // be reported (SEMANTICS).
    struct ::rlimit limit {};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = k_fd_limit;
    setrlimit(RLIMIT_NOFILE, &limit);
    p.play_part(count);
    // fflush undoes the read-ahead of streams, which moves offsets that the parent shares.
    if (a[1] % 2 == 0) fflush(nullptr);
    _exit(static_cast<int>(count));
  }
  if (child < 0) return p.say("fork: {}", error_name(errno));
  p.say("fork of {}: {}", count, status_text(child));
  p.skip(count);
}

DIFFER_PLAY(vfork_exec) {
  const int fd = p.fd(a[0]);
  // An inherited directory of a pack is an empty one (SEMANTICS, Packs).
  if (p.is_packed_directory(fd)) return;
  Output output;
  if (!output.is_there()) return;
  const std::string length = std::to_string(a[1]),
                    number = std::to_string(a[2] < 4 ? STDIN_FILENO : fd);
  const char* const arguments[] = {"reader", k_reader_flag, number.c_str(), length.c_str(),
                                   nullptr};
  // The child runs in the parent's memory, like a child of subprocess.Popen.
  const pid_t child = vfork();
  if (child == 0) {
    if (dup2(k_pipe_fd + 1, STDOUT_FILENO) < 0) _exit(90);
    if (a[2] < 4 && dup2(fd, STDIN_FILENO) < 0) _exit(91);
    if (a[2] < 4) close_range(3, ~0U, 0);
    execve("/proc/self/exe", const_cast<char* const*>(arguments), environment(a[2]));
    _exit(92);
  }
  if (child < 0) return p.say("vfork: {}", error_name(errno));
  const std::string text = output.text();
  p.say("vfork and exec with {}: {} {}", fd, status_text(child), text);
}

DIFFER_PLAY(spawn) {
  const int fd = p.fd(a[0]);
  Output output;
  if (!output.is_there()) return;
  const std::string path = p.tree().root + "/" + std::string(Player::entry(a[3]).name);
  const bool inherits = a[2] >= 5;
  // The child's own opens go to the kernel (SEMANTICS, Packs).
  if (p.tree().is_packed() && (a[2] == 3 || a[2] == 4 || p.is_packed_directory(fd))) return;
  const std::string length = std::to_string(a[1]), number = std::to_string(inherits ? fd : 5);
  const char* const arguments[] = {"reader", k_reader_flag, number.c_str(), length.c_str(),
                                   nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, k_pipe_fd + 1, STDOUT_FILENO);
  if (!inherits && a[2] < 3) posix_spawn_file_actions_adddup2(&actions, fd, 5);
  if (!inherits && a[2] >= 3)
    posix_spawn_file_actions_addopen(&actions, 5, path.c_str(), O_RDONLY, 0);
  pid_t child = -1;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr,
                                const_cast<char* const*>(arguments), environment(a[2]));
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return p.say("spawn with {}: {}", fd, error_name(error));
  const std::string text = output.text();
  p.say("spawn with {}: {} {}", fd, status_text(child), text);
}

}  // namespace cube::differ
