// The commands of preload_helper that use children and other programs.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/preload/helper.h"
#include "tests/support/preload_content.h"

using cube::preload::number_of;
using cube::preload::size_of;

namespace {

// children HOW FILE TIMES CHILDREN: forks children that read FILE and end in the way that HOW
// names. The parent reads nothing.
int do_children(const Arguments& a) {
  for (int i = 0; i < std::stoi(a[3]); ++i) {
    const pid_t child = fork();
    if (child == 0) return do_end(a);
    waitpid(child, nullptr, 0);
  }
  return 0;
}

// lock-vfork FILE: locks FILE, closes its fd in a child of vfork, then opens FILE again and makes
// the kernel use that fd. FILE should be locked each time the program reads a line.
int do_lock_vfork(const Arguments& a) {
  const auto look = [] {
    std::puts("locked");
    CHECK(std::fflush(stdout) == 0);
    CHECK(std::getchar() == '\n');
  };
  static int fd = open(a[0].c_str(), O_RDONLY);
  struct ::flock lock {};
  lock.l_type = F_RDLCK;
  CHECK(fcntl(fd, F_SETLK, &lock) == 0);
  const pid_t child = vfork();
  if (child == 0) _exit(close(fd));
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  look();
  const int again = open(a[0].c_str(), O_RDONLY);
  char head[10];
  CHECK(read(again, head, sizeof head) == sizeof head);
  CHECK(fsync(again) == 0);
  look();
  return 0;
}

// handled-vfork FILE: starts a program by vfork after it has read a line. The first SIGALRM opens
// FILE. Prints whether the parent can then read through that fd.
int do_handled_vfork(const Arguments& a) {
  static const char* path = a[0].c_str();
  static int opened = -1;
  static char head[10];
  const int fd = open(path, O_RDONLY);
  CHECK(read(fd, head, sizeof head) == sizeof head);
  std::signal(SIGALRM, [](int) { opened = opened < 0 ? open(path, O_RDONLY) : opened; });
  std::printf("%d\n", getpid());
  CHECK(std::fflush(stdout) == 0 && std::getchar() == '\n');
  static char name[] = "true";
  static char* arguments[] = {name, nullptr};
  const pid_t child = vfork();
  if (child == 0) {
    execve("/bin/true", arguments, arguments + 1);
    _exit(1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(opened >= 0);
  std::puts(pread(opened, head, sizeof head, 0) == sizeof head ? "reads" : "cannot read");
  return 0;
}

// fork-beside FILE: a thread forks when the program has read a line. The second line says that the
// fork has begun. Then this thread opens FILE, locks it and reads. After the third line, FILE
// becomes a kernel file.
int do_fork_beside(const Arguments& a) {
  const std::string other = a[0] + "-other";
  CHECK(close(open(other.c_str(), O_RDONLY)) == 0);
  std::atomic<bool> is_begun = false;
  std::thread forker([&is_begun] {
    std::printf("%d\n", gettid());
    CHECK(std::fflush(stdout) == 0 && std::getchar() == '\n');
    is_begun = true;
    is_begun.notify_one();
    const pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(waitpid(child, nullptr, 0) == child);
  });
  is_begun.wait(false);
  CHECK(std::getchar() == '\n');
  const int fd = open(a[0].c_str(), O_RDONLY);
  char head[10];
  CHECK(flock(fd, LOCK_SH) == 0 && read(fd, head, sizeof head) == sizeof head);
  CHECK(std::puts("read") > 0 && std::fflush(stdout) == 0 && std::getchar() == '\n');
  CHECK(fsync(fd) == 0 && read(fd, head, sizeof head) == sizeof head);
  CHECK(std::puts("the kernel's") > 0 && std::fflush(stdout) == 0);
  forker.join();
  std::printf("%ld\n", static_cast<long>(lseek(fd, 0, SEEK_CUR)));
  return 0;
}

// vfork FILE PROGRAM: the steps of CPython's subprocess: vfork, then dup2, close_range and exec in
// the child. The parent's fds stay right.
int do_vfork(const Arguments& a) {
  const int number = number_of(a[0]);
  for (int round = 0; round < 20; ++round) {
    const int fd = open(a[0].c_str(), O_RDONLY | O_CLOEXEC);
    const int other = open(a[0].c_str(), O_RDONLY);
    char head[10];
    CHECK(read(fd, head, 10) == 10);
    const char* arguments[] = {a[1].c_str(), "check", "0", nullptr, "10", nullptr};
    char text[20];
    std::snprintf(text, sizeof text, "%d", number);
    arguments[3] = text;
    const pid_t child = vfork();
    if (child == 0) {
      if (dup2(fd, 0) != 0) _exit(91);
      if (close_range(3, ~0U, 0) != 0) _exit(92);
      execv(a[1].c_str(), const_cast<char**>(arguments));
      _exit(93);
    }
    CHECK(child > 0);
    // The file is served again in the parent while the child may still be running.
    check_file(a[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) std::fprintf(stderr, "helper: status %d\n", status);
    CHECK(status == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == static_cast<off_t>(size_of(number)));
    check_fd(other, number);
    CHECK(close(fd) == 0 && close(other) == 0);
  }
  return 0;
}

// vfork-close FILE: while a child of vfork runs, another thread opens FILE, and the child closes
// that fd with syscall()
int do_vfork_close(const Arguments& a) {
  std::atomic<int> number{-1};
  std::atomic<bool> is_child_running{false};
  const int warm = open(a[0].c_str(), O_RDONLY);
  CHECK(warm >= 0 && close(warm) == 0);
  std::thread opener([&] {
    while (!is_child_running) sched_yield();
    number = open(a[0].c_str(), O_RDONLY);
  });
  const pid_t child = vfork();
  if (child == 0) {
    is_child_running = true;
    while (number < 0) sched_yield();
    // The child's own table does not have it.
    _exit(syscall(SYS_close, static_cast<long>(number)) == 0 || errno != EBADF);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  opener.join();
  check_fd(number, number_of(a[0]));
  CHECK(close(number) == 0);
  return 0;
}

// vfork-write FILE ABSENT SOURCE: the parent looks for ABSENT. Then the child opens FILE, and cat
// writes SOURCE to it.
int do_vfork_write(const Arguments& a) {
  CHECK(open(a[1].c_str(), O_RDONLY) < 0);
  const pid_t child = vfork();
  if (child == 0) {
    dup2(open(a[0].c_str(), O_WRONLY | O_TRUNC), STDOUT_FILENO);
    execlp("cat", "cat", a[2].c_str(), nullptr);
    _exit(1);
  }
  _exit(child < 0);
}

// exec FILE PROGRAM HOW: an exec with an inherited fd
int do_exec(const Arguments& a) {
  const int fd = open(a[0].c_str(), O_RDONLY);
  char head[10];
  CHECK(read(fd, head, 10) == 10);
  const std::string number = std::to_string(number_of(a[0])), at = std::to_string(fd);
  const std::string& how = a[2];
  const char* const v[] = {a[1].c_str(), "check", at.c_str(), number.c_str(), "10", nullptr};
  auto** const arguments = const_cast<char**>(v);
  if (how == "execv") execv(v[0], arguments);
  if (how == "execve") execve(v[0], arguments, environ);
  if (how == "execvp") execvp(v[0], arguments);
  if (how == "execvpe") execvpe(v[0], arguments, environ);
  if (how == "execl") execl(v[0], v[0], v[1], v[2], v[3], v[4], nullptr);
  if (how == "execlp") execlp(v[0], v[0], v[1], v[2], v[3], v[4], nullptr);
  if (how == "execle") execle(v[0], v[0], v[1], v[2], v[3], v[4], nullptr, environ);
  if (how == "execveat") execveat(AT_FDCWD, v[0], arguments, environ, 0);
  if (how == "fexecve") fexecve(open(v[0], O_RDONLY | O_CLOEXEC), arguments, environ);
  if (how == "syscall") syscall(SYS_execve, v[0], arguments, environ);
  std::perror("exec");
  return 1;
}

// vfork-twin FILE OTHER: the first process of a pid namespace makes a vforked child that is the
// first process of another one, so both have pid 1. The child opens OTHER under the fd of FILE.
int do_vfork_twin(const Arguments& a) {
  const int fd = open(a[0].c_str(), O_RDONLY);
  char head[10];
  CHECK(getpid() == 1 && read(fd, head, 10) == 10 && unshare(CLONE_NEWPID) == 0);
  // NOLINTNEXTLINE(clang-analyzer-security.insecureAPI.vfork)
  const pid_t child = vfork();
  if (child == 0)
    _exit(getpid() == 1 && close(fd) == 0 && open(a[1].c_str(), O_RDONLY) == fd ? 0 : 1);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  check_fd(fd, number_of(a[0]), 10);
  check_file(a[1]);
  return 0;
}

}  // namespace

Commands child_commands() {
  return {{"children", do_children},
          {"fork-beside", do_fork_beside},
          {"lock-vfork", do_lock_vfork},
          {"handled-vfork", do_handled_vfork},
          {"vfork", do_vfork},
          {"vfork-close", do_vfork_close},
          {"vfork-write", do_vfork_write},
          {"vfork-twin", do_vfork_twin},
          {"exec", do_exec}};
}
