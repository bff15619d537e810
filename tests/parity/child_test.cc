// Every way to make a child: all forms of fork, vfork, clone, daemon, forkpty and spawn. The child
// and its parent share the offset of an inherited fd.
#include <linux/sched.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>

#include "cache/base/sys.h"
#include "tests/support/parity_case.h"

using cube::parity::function;

extern char** environ;
extern "C" pid_t __vfork() __attribute__((returns_twice));

namespace {

// The values that a child saw. They are in memory that the child shares with its parent, because a
// pipe would need fds.
struct Seen {
  char bytes[8];
  long n, at, opened, own;
  int error;
};
Seen* shared_memory() {
  void* const at =
      mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<Seen*>(at);
}
// Reads at the shared offset, then opens the file again.
void look(Seen& seen, int fd, const char* path) {
  seen.n = read(fd, seen.bytes, 8);
  seen.error = seen.n < 0 ? errno : 0;
  seen.at = lseek(fd, 0, SEEK_CUR);
  const int own = open(path, O_RDONLY | O_CLOEXEC);
  seen.opened = own;
  char byte = 0;
  seen.own = read(own, &byte, 1) == 1 ? byte : -1;
}
void tell(cube::parity::Case& t, const char* label, Seen& seen, int fd) {
  t.line(label);
  t.bytes("child read", seen.bytes, 8);
  t.line("n " + std::to_string(seen.n) + " at " + std::to_string(seen.at) + " opened " +
         std::to_string(seen.opened) + " own " + std::to_string(seen.own) + " error " +
         std::to_string(seen.error));
  char got[8] = {};
  CALL(lseek(fd, 0, SEEK_CUR));
  CALL(read(fd, got, 8));
  t.bytes("parent reads on", got, 8);
  seen = {};
}
int wait_status(pid_t child, int flags = 0) {
  int status = -1;
  const pid_t ended = waitpid(child, &status, flags);
  return ended > 0 && (child < 0 || ended == child) ? status : -1;
}

struct ForClone {
  Seen* seen;
  int fd;
  const char* path;
};
int cloned(void* argument) {
  auto* const what = static_cast<ForClone*>(argument);
  look(*what->seen, what->fd, what->path);
  syscall(SYS_exit_group, 7);
  return 0;
}

}  // namespace

PARITY(Child, EveryForm) {
  const char* const path = t.file("a", 4000);
  Seen* const seen = shared_memory();
  using Fork = pid_t();
  for (const char* name : {"fork", "__fork", "_Fork"}) {
    const int fd = CALL(open(path, O_RDONLY));
    CALL(lseek(fd, 100, SEEK_SET));
    const pid_t child = function<Fork>(name)();
    if (child == 0) {
      look(*seen, fd, path);
      _exit(5);
    }
    t.line("status " + std::to_string(wait_status(child)));
    tell(t, name, *seen, fd);
    CALL(close(fd));
  }
  const int fd = CALL(open(path, O_RDONLY));
  t.expect_served(fd);
  CALL(lseek(fd, 200, SEEK_SET));
  const pid_t child =
      static_cast<pid_t>(syscall(SYS_clone, static_cast<long>(SIGCHLD), 0L, 0L, 0L, 0L));
  if (child == 0) {
    look(*seen, fd, path);
    _exit(6);
  }
  t.line("status " + std::to_string(wait_status(child)));
  tell(t, "clone by number", *seen, fd);
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  const int second = CALL(open(path, O_RDONLY));
  const pid_t third = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof arguments));
  if (third == 0) {
    look(*seen, second, path);
    _exit(8);
  }
  t.line("status " + std::to_string(wait_status(third)));
  tell(t, "clone3 by number", *seen, second);
}

PARITY(Child, VforkInBothSpellings) {
  const char* const path = t.file("a", 4000);
  static Seen seen;
  seen = {};
  {
    const int fd = CALL(open(path, O_RDONLY));
    CALL(lseek(fd, 100, SEEK_SET));
    const pid_t child = vfork();
    if (child == 0) {
      // The same steps as in CPython's subprocess: dup2, close_range, and an exec that fails.
      seen.n = pread(fd, seen.bytes, 8, 50);
      dup2(fd, 40);
      close(fd);
      close_range(3, 39, 0);
      seen.at = lseek(40, 10, SEEK_CUR);
      execl("/nonexistent/x", "x", static_cast<char*>(nullptr));
      seen.error = errno;
      _exit(4);
    }
    t.line("status " + std::to_string(wait_status(child)));
    tell(t, "vfork", seen, fd);
    CALL(fcntl(40, F_GETFD));
    CALL(close(fd));
  }
  {
    const int fd = CALL(open(path, O_RDONLY));
    const pid_t child = __vfork();
    if (child == 0) {
      seen.n = read(fd, seen.bytes, 8);
      _Exit(9);
    }
    t.line("status " + std::to_string(wait_status(child)));
    tell(t, "__vfork", seen, fd);
  }
}

PARITY(Child, CloneWithEveryShareOfThings) {
  const char* const path = t.file("a", 4000);
  Seen* const seen = shared_memory();
  static char stack[256 << 10];
  char* const top = stack + sizeof stack;
  const auto look_with = [&](int flags) {
    const int fd = CALL(open(path, O_RDONLY));
    CALL(lseek(fd, 300, SEEK_SET));
    ForClone what{seen, fd, path};
    const pid_t child = clone(cloned, top, flags, &what);
    t.line("flags " + std::to_string(flags));
    t.line("status " + std::to_string(wait_status(child, __WALL)));
    tell(t, "clone", *seen, fd);
    CALL(close(fd));
  };
  for (const int flags : {SIGCHLD, SIGCHLD | CLONE_FS, SIGCHLD | CLONE_VM | CLONE_VFORK, 0})
    look_with(flags);
  // After a clone that shares the fd table but not the memory, the process no longer reads through
  // the cache.
  t.in_child([&] { look_with(SIGCHLD | CLONE_FILES); });
  CALL(clone(nullptr, top, SIGCHLD, nullptr));
  CALL(clone(cloned, nullptr, SIGCHLD, nullptr));
  CALL(clone(cloned, top, CLONE_SIGHAND, nullptr));
  EXPECT_EQ(errno, EINVAL);
}

PARITY(Child, CloneWithOneTableOfFdsByCallNumber) {
  t.file("a", 4000);
  t.file("b", 3000);
  // If one process opens a file at an fd, the other process sees the file at the same fd.
  const auto exchange = [&](auto&& make_child) {
    int ask[2] = {}, answer[2] = {}, number = -1;
    CALL(pipe(ask));
    CALL(pipe(answer));
    const long child = make_child();
    char got[8] = {};
    if (child == 0) {
      int seen = read(ask[0], &number, sizeof number) == sizeof number && read(number, got, 8) == 8
                     ? 1
                     : 0;
      close(number);
      seen += open(t / "b", O_RDONLY) == number ? 2 : 0;
      if (write(answer[1], got, 8) != 8) _exit(0);
      seen += read(ask[0], &number, sizeof number) == sizeof number && read(number, got, 8) == 8
                  ? 4
                  : 0;
      _exit(seen);
    }
    number = CALL(open(t / "a", O_RDONLY));
    CALL(write(ask[1], &number, sizeof number));
    CALL(read(answer[0], got, 8));
    t.bytes("of the child", got, 8);
    CALL(read(number, got, 8));
    t.bytes("of the number", got, 8);
    number = CALL(open(t / "b", O_RDONLY));
    CALL(write(ask[1], &number, sizeof number));
    t.line("status " + std::to_string(wait_status(static_cast<pid_t>(child))));
    CALL(lseek(number, 0, SEEK_CUR));
  };
  t.in_child([&] {
    exchange([] {
      return syscall(SYS_clone, static_cast<long>(SIGCHLD | CLONE_FILES), 0L, 0L, 0L, 0L);
    });
  });
  t.in_child([&] {
    exchange([] {
      clone_args arguments{};
      arguments.flags = CLONE_FILES;
      arguments.exit_signal = SIGCHLD;
      return syscall(SYS_clone3, &arguments, sizeof arguments);
    });
  });
}

namespace {

struct ForThread {
  const char* path;
  int fd;
  char got[8];
  std::atomic<int> step;
};
int cloned_thread(void* argument) {
  auto& what = *static_cast<ForThread*>(argument);
  close(what.fd);
  if (open(what.path, O_RDONLY) != what.fd || read(what.fd, what.got, 8) != 8) what.got[0] = 0;
  what.step = 1;
  // libpthread does not know this thread, so the thread makes no more calls of libc.
  while (what.step != 2) cube::base::sys::raw(SYS_sched_yield);
  cube::base::sys::raw(SYS_exit, 0);
  return 0;
}

}  // namespace

PARITY(Child, CloneOfAThreadWithASeparateFdTable) {
  t.file("a", 4000);
  t.file("b", 3000);
  t.in_child([&] {
    static char stack[256 << 10];
    static ForThread what;
    what.path = t / "b";
    what.fd = CALL(open(t / "a", O_RDONLY));
    CALL(clone(cloned_thread, stack + sizeof stack, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD,
               &what) > 0);
    while (what.step != 1) sched_yield();
    t.bytes("of the thread", what.got, 8);
    char got[8] = {};
    CALL(read(what.fd, got, 8));
    t.bytes("of the process", got, 8);
    what.step = 2;
  });
}

PARITY(Child, DaemonKeepsTheOffset) {
  const char* const path = t.file("a", 4000);
  const int fd = CALL(open(path, O_RDONLY));
  CALL(lseek(fd, 500, SEEK_SET));
  Seen* const seen = shared_memory();
  int done[2];
  CALL(pipe(done));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t child = fork();
  if (child == 0) {
    const int result = daemon(1, 0);
    look(*seen, fd, path);
    seen->error = result;
    write(done[1], "x", 1);
    _exit(0);
  }
  t.line("status " + std::to_string(wait_status(child)));
  char byte = 0;
  CALL(read(done[0], &byte, 1));
  // The daemon's parent has exited, so this process must also wait until the daemon has left the
  // cache.
  t.line("daemon's status " + std::to_string(wait_status(-1)));
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  tell(t, "daemon", *seen, fd);
}

PARITY(Child, ForkptyInheritsServedFiles) {
  const char* const path = t.file("a", 4000);
  const int fd = CALL(open(path, O_RDONLY));
  CALL(lseek(fd, 600, SEEK_SET));
  Seen* const seen = shared_memory();
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, nullptr);
  if (child == 0) {
    look(*seen, fd, path);
    seen->error = isatty(0) + isatty(fd);
    _exit(3);
  }
  t.line("status " + std::to_string(wait_status(child)));
  tell(t, "forkpty", *seen, fd);
  CALL(close(master));
}

PARITY(Child, SpawnWithEveryAction) {
  const char* const path = t.text("a", "one\ntwo\nthree\nfour\n");
  t.dir("d");
  int out[2];
  CALL(pipe2(out, O_CLOEXEC));
  for (const bool by_search : {false, true}) {
    const int fd = CALL(open(path, O_RDONLY));
    const int other = CALL(open(path, O_RDONLY | O_CLOEXEC));
    CALL(lseek(other, 4, SEEK_SET));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    // One fd is closed and opened again, and another is duplicated onto itself to lose
    // close-on-exec. Then a file is opened at an fd that is in use.
    posix_spawn_file_actions_addclose(&actions, fd);
    posix_spawn_file_actions_adddup2(&actions, other, other);
    posix_spawn_file_actions_addopen(&actions, fd, path, O_RDONLY, 0);
    posix_spawn_file_actions_addfchdir_np(&actions,
                                          CALL(open(t / "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
    const std::string script = "cat <&" + std::to_string(fd) + "; echo -; cat <&" +
                               std::to_string(other) + "; cat ../a | wc -c";
    const char* const arguments[] = {"sh", "-c", script.c_str(), nullptr};
    pid_t child = -1;
    CALL(by_search
             ? posix_spawnp(&child, "sh", &actions, nullptr, const_cast<char**>(arguments), environ)
             : posix_spawn(&child, "/bin/sh", &actions, nullptr, const_cast<char**>(arguments),
                           environ));
    t.line("status " + std::to_string(wait_status(child)));
    posix_spawn_file_actions_destroy(&actions);
    char got[200] = {};
    CALL(read(out[0], got, sizeof got));
    t.line(got);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(other, 0, SEEK_CUR));
  }
  pid_t child = 0;
  const char* const arguments[] = {"x", nullptr};
  CALL(posix_spawnp(&child, "no-such-program", nullptr, nullptr, const_cast<char**>(arguments),
                    environ));
  CALL(posix_spawn(&child, path, nullptr, nullptr, const_cast<char**>(arguments), environ));
}

PARITY(Child, EveryWaitReportsHowTheChildEnded) {
  const auto child_of = [](int status) {
    const pid_t child = fork();
    if (child == 0) _exit(status);
    return child;
  };
  const auto tell_of = [&](const char* call, bool is_child, int status) {
    t.line(std::string(call) + (is_child ? " child " : " other ") + std::to_string(status));
  };
  struct rusage usage {};
  siginfo_t info{};
  int status = -1;
  pid_t child = child_of(3);
  tell_of("wait", wait(&status) == child, status);
  child = child_of(4);
  tell_of("waitpid", waitpid(child, nullptr, 0) == child, 0);
  child = child_of(5);
  tell_of("wait3", wait3(&status, 0, &usage) == child, status);
  child = child_of(6);
  tell_of("wait4", wait4(child, &status, 0, nullptr) == child, status);
  child = child_of(7);
  CALL(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED));
  tell_of("waitid", info.si_pid == child, info.si_status);
  child = child_of(8);
  CALL(waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED));
  CALL(waitpid(-1, &status, WNOHANG));
  CALL(wait(nullptr));
}

PARITY(Child, PlaceholdersNeverReachAChildThatPassesLibcBy) {
  // The process forks by the bare system call, so no fork handler of libc runs. The library notices
  // the fork at the child's first call.
  const char* const path = t.file("a", 4000);
  const int fd = CALL(open(path, O_RDONLY));
  CALL(lseek(fd, 700, SEEK_SET));
  Seen* const seen = shared_memory();
  const long child = cube::base::sys::raw(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    seen->n = pread(fd, seen->bytes, 8, 700);
    seen->own = open(path, O_RDONLY) >= 0 ? 1 : 0;
    cube::base::sys::raw(SYS_exit_group, 2);
  }
  t.line("status " + std::to_string(wait_status(static_cast<pid_t>(child))));
  t.bytes("child", seen->bytes, 8);
  t.line(std::to_string(seen->n) + " " + std::to_string(seen->own));
  CALL(lseek(fd, 0, SEEK_CUR));
}
