// The host's commands with children and with other programs.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "cache/base/sys.h"
#include "tests/hostile/crash/host.h"

namespace cube::crash {
namespace {

// Forks a child that does not outlive this process, even if this process is killed.
pid_t fork_child() {
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
  }
  return child;
}
// The word that a child writes to the pipe, and the child's exit status.
struct ChildAnswer {
  std::string text;
  int status = 0;
};
ChildAnswer answer_of(pid_t child, const int (&pipe_ends)[2]) {
  close(pipe_ends[1]);
  char text[200] = "";
  const ssize_t n = read(pipe_ends[0], text, sizeof text);
  close(pipe_ends[0]);
  ChildAnswer answer{std::string(text, n > 0 ? static_cast<std::size_t>(n) : 0)};
  waitpid(child, &answer.status, 0);
  return answer;
}
bool tell(const int (&pipe_ends)[2], const std::string& text) {
  return write(pipe_ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
}
// child PATH: a forked child reads the file too
std::string do_child(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const pid_t child = fork_child();
  if (child == 0) {
    _exit(tell(answer, do_read(words)) ? 0 : 1);
  }
  const ChildAnswer got = answer_of(child, answer);
  return got.status != 0 ? "child ended with " + std::to_string(got.status) : got.text;
}
// forked FD BYTES: a child reads that many bytes, and then this process does
std::string do_forked(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const pid_t child = fork_child();
  if (child == 0) {
    _exit(tell(answer, do_next(words)) ? 0 : 1);
  }
  const std::string childs = answer_of(child, answer).text;
  return childs + " then " + do_next(words);
}
// rawforked FD OFFSET BYTES: a child reads these bytes from the fd and closes the fd. The child is
// made by a clone that bypasses libc and the library.
std::string do_raw_forked(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const long child = cube::base::sys::raw(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool told = tell(answer, do_at({"at", words[1], words[2], words[3]}));
    _exit(close(std::stoi(words[1])) == 0 && told ? 0 : 1);
  }
  const ChildAnswer got = answer_of(static_cast<pid_t>(child), answer);
  return got.status != 0 ? "child ended with " + std::to_string(got.status) : got.text;
}
// executed FD BYTES: a child executes a program that reads that many bytes from its standard input
std::string do_executed(const Words& words) {
  int answer[2];
  if (pipe(answer) != 0) return failed("pipe");
  const pid_t child = fork_child();
  if (child == 0) {
    dup2(std::stoi(words[1]), 0);
    dup2(answer[1], 1);
    execlp("head", "head", "-c", words[2].c_str(), static_cast<char*>(nullptr));
    _exit(1);
  }
  close(answer[1]);
  std::string bytes;
  if (!read_all(answer[0], "read", bytes)) return failed("read");
  close(answer[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return seen(static_cast<long>(bytes.size()), bytes);
}
// become: executes this program again in the same process
std::string do_become(const Words&) {
  execl("/proc/self/exe", "crash_host", "became", static_cast<char*>(nullptr));
  return failed("execl");
}

// unshare: enters a new namespace without any other change
std::string do_unshare(const Words&) {
  return unshare(CLONE_FS) == 0 ? "unshared" : failed("unshare");
}

}  // namespace

Commands child_commands() {
  return {{"rawforked", do_raw_forked}, {"forked", do_forked}, {"executed", do_executed},
          {"become", do_become},        {"child", do_child},   {"unshare", do_unshare}};
}

}  // namespace cube::crash
