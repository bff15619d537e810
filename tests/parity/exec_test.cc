// All forms of exec. Inherited fds are kernel files at the shared offset, and close-on-exec fds are
// closed. Files of the covered tree are run by path and by fd.
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/support/parity_case.h"

extern char** environ;

namespace {

// Returns the output of the shell that the child becomes. Its standard input is the fd.
std::string output_of(cube::parity::Case& t, const std::function<void()>& exec) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], 1);
    exec();
    _exit(errno == 0 ? 126 : errno);
  }
  close(out[1]);
  std::string got;
  char buffer[4096];
  for (ssize_t n; (n = read(out[0], buffer, sizeof buffer)) > 0;) got.append(buffer, n);
  close(out[0]);
  int status = -1;
  waitpid(child, &status, 0);
  for (std::size_t at; (at = got.find(t.root())) != std::string::npos;)
    got.replace(at, t.root().size(), "<tree>");
  return got + " status " + std::to_string(status);
}

}  // namespace

PARITY(Exec, EveryFormHandsTheOffsetOn) {
  const int fd =
      CALL(open(t.text("a", "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"), O_RDONLY));
  const int gone = CALL(open(t / "a", O_RDONLY | O_CLOEXEC));
  char got[4];
  CALL(read(fd, got, 4));
  const std::string script = "read x <&" + std::to_string(fd) + "; echo $x $V; cat <&" +
                             std::to_string(gone) + " 2>/dev/null || echo gone; cat <&9";
  const char* const command = script.c_str();
  char* arguments[] = {const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>(command),
                       nullptr};
  char* environment[] = {const_cast<char*>("V=set"), const_cast<char*>("PATH=/bin:/usr/bin"),
                         nullptr};
  for (int which = 0; which < 11; ++which) {
    t.line(std::to_string(which) + ": " + output_of(t, [&] {
             // The library serves the file in this process, which is about to become another
             // program.
             dup2(open(t / "a", O_RDONLY), 9);
             lseek(9, 34, SEEK_SET);
             switch (which) {
               case 0: execv("/bin/sh", arguments); break;
               case 1: execve("/bin/sh", arguments, environment); break;
               case 2: execvp("sh", arguments); break;
               case 3: execvpe("sh", arguments, environment); break;
               case 4: execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr)); break;
               case 5: execlp("sh", "sh", "-c", command, static_cast<char*>(nullptr)); break;
               case 6:
                 execle("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr), environment);
                 break;
               case 7: fexecve(open("/bin/sh", O_RDONLY), arguments, environment); break;
               case 8: execveat(AT_FDCWD, "/bin/sh", arguments, environment, 0); break;
               case 9: syscall(SYS_execve, "/bin/sh", arguments, environment); break;
               case 10:
                 syscall(SYS_execveat, AT_FDCWD, "/bin/sh", arguments, environment, 0L);
                 break;
             }
           }));
    CALL(lseek(fd, 0, SEEK_CUR));
  }
}

PARITY(Exec, CloseOnExecHasTheValueThatWasSet) {
  const char* const path = t.text("a", "0123456789");
  int fds[6];
  for (int& fd : fds) fd = CALL(open(path, O_RDONLY));
  const int cloexec = CALL(open(path, O_RDONLY | O_CLOEXEC));
  CALL(fcntl(fds[0], F_SETFD, FD_CLOEXEC));
  CALL(fcntl(cloexec, F_SETFD, 0));
  CALL(dup3(fds[1], fds[2], O_CLOEXEC));
  CALL(fcntl(fds[3], F_DUPFD_CLOEXEC, 20));
  CALL(close_range(fds[4], fds[4], CLOSE_RANGE_CLOEXEC));
  const int back = CALL(fcntl(fds[0], F_DUPFD, 30));
  CALL(fcntl(back, F_GETFD));
  t.line(output_of(t, [&] {
    execl("/bin/sh", "sh", "-c",
          "for n in 3 4 5 6 7 8 9 20 30; do [ -e /proc/self/fd/$n ] && printf '%s ' $n; done; true",
          static_cast<char*>(nullptr));
  }));
  for (int fd = 3; fd < 10; ++fd) CALL(fcntl(fd, F_GETFD));
}

PARITY(Exec, FilesOfTheTreeAreRun) {
  const char* const path = t.text("script", "#!/bin/sh\necho ran $0 $1\n");
  t.link("l", "script");
  CALL(chmod(path, 0755));
  CALL(close(CALL(open(path, O_RDONLY))));
  CALL(close(CALL(open(path, O_RDONLY))));
  char* arguments[] = {const_cast<char*>("x"), const_cast<char*>("one"), nullptr};
  const int fd = CALL(open(path, O_RDONLY));
  const int directory = CALL(open(t.root().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int which = 0; which < 8; ++which) {
    t.line(std::to_string(which) + ": " + output_of(t, [&] {
             switch (which) {
               case 0: execv(path, arguments); break;
               case 1: execv(t / "l", arguments); break;
               case 2: execveat(directory, "script", arguments, environ, 0); break;
               case 3: execveat(open(path, O_RDONLY), "", arguments, environ, AT_EMPTY_PATH); break;
               case 4: fexecve(open(path, O_RDONLY), arguments, environ); break;
               case 5: execveat(directory, "l", arguments, environ, AT_SYMLINK_NOFOLLOW); break;
               case 6: execveat(open(path, O_RDONLY), "x", arguments, environ, 0); break;
               case 7: execveat(open(path, O_RDONLY), "", arguments, environ, 0); break;
             }
           }));
  }
  CALL(chmod(path, 0644));
  t.line(output_of(t, [&] { execv(path, arguments); }));
  t.line(output_of(t, [&] { execv(t / "none", arguments); }));
  t.line(output_of(t, [&] { execv(t.root().c_str(), arguments); }));
  t.line(output_of(t, [&] { execv((std::string(path) + "/").c_str(), arguments); }));
  char got[4] = {};
  CALL(read(fd, got, 4));
  t.bytes("still there", got, 4);
}

PARITY(Exec, ProgramsOfTheTreeAreRun) {
  // A real program, copied into the tree by a child. The dynamic loader maps it, and the program
  // finds its own path.
  const char* const path = t / "program";
  CALL(system(("cp /bin/cat " + std::string(path) + " && chmod 755 " + path).c_str()));
  CALL(close(CALL(open(path, O_RDONLY))));
  CALL(close(CALL(open(path, O_RDONLY))));
  t.text("a", "said\n");
  t.line(output_of(t, [&] { execl(path, "cat", t / "a", static_cast<char*>(nullptr)); }));
  const int fd = CALL(open(path, O_RDONLY));
  char* arguments[] = {const_cast<char*>("cat"), const_cast<char*>(t / "a"), nullptr};
  t.line(output_of(t, [&] { fexecve(fd, arguments, environ); }));
  const auto fd_name = [&] {
    return "/proc/self/fd/" + std::to_string(open(path, O_RDONLY | O_CLOEXEC));
  };
  t.line(output_of(t, [&] { execv(fd_name().c_str(), arguments); }));
  t.line(output_of(t, [&] { execvp(fd_name().c_str(), arguments); }));
  t.line(output_of(t, [&] { execveat(AT_FDCWD, fd_name().c_str(), arguments, environ, 0); }));
  t.line(output_of(t, [&] { syscall(SYS_execve, fd_name().c_str(), arguments, environ); }));
  // While the file is open for writing, no process may run it; while it runs, none may write to it.
  const int writer = CALL(open(path, O_WRONLY));
  t.line(output_of(t, [&] { execl(path, "cat", t / "a", static_cast<char*>(nullptr)); }));
  CALL(close(writer));
}

PARITY(Exec, ExitInItsForms) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  char got[8];
  for (int which = 0; which < 4; ++which) {
    const pid_t child = fork();
    if (child == 0) {
      read(fd, got, 8);
      if (which == 0) _exit(10);
      if (which == 1) _Exit(11);
      if (which == 2) quick_exit(12);
      if (which == 3) syscall(SYS_exit_group, 13);
    }
    int status = -1;
    waitpid(child, &status, 0);
    t.line("status " + std::to_string(status));
    CALL(lseek(fd, 0, SEEK_CUR));
  }
}

PARITY(Exec, OpenedByTheProgramThatRuns) {
  const char* const path = t.file("a", 4000);
  CALL(close(CALL(open(path, O_RDONLY))));
  t.line(output_of(t, [&] {
    execl("/bin/sh", "sh", "-c", (std::string("cksum ") + path).c_str(),
          static_cast<char*>(nullptr));
  }));
  t.line(output_of(t, [&] {
    // The environment does not preload the library, so the program reads the original file.
    char* environment[] = {const_cast<char*>("PATH=/bin:/usr/bin"), nullptr};
    execle("/bin/sh", "sh", "-c", (std::string("cksum ") + path).c_str(),
           static_cast<char*>(nullptr), environment);
  }));
}
