// The effects of fork and exec within one process: shared offsets, inherited fds, rights.
#include <spawn.h>
#include <sys/fsuid.h>
#include <sys/wait.h>
#include <wordexp.h>

#include "tests/support/parity_case.h"

extern char** environ;

namespace {

void peek(cube::parity::Case& t, int fd) {
  char got[8] = {};
  CALL(read(fd, got, 8));
  t.bytes("peek", got, 8);
}
std::string run(const char* command, int fd) {
  // Reads what `command` writes with `fd` as its standard input.
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return "pipe";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fd, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  const char* const arguments[] = {"/bin/sh", "-c", command, nullptr};
  pid_t pid = 0;
  const int error =
      posix_spawn(&pid, "/bin/sh", &actions, nullptr, const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  std::string got;
  char buffer[4096];
  for (ssize_t n; (n = read(out[0], buffer, sizeof buffer)) > 0;) got.append(buffer, n);
  close(out[0]);
  int status = 0;
  if (error == 0) waitpid(pid, &status, 0);
  return got + " error " + std::to_string(error) + " status " + std::to_string(status);
}

}  // namespace

PARITY(Process, ClosedFdsAreClosedForAChild) {
  const char* const path = t.file("a", 300);
  int fd = CALL(open(path, O_RDONLY));
  CALL(close(fd));
  const pid_t child = vfork();
  if (child == 0) _exit(dup2(fd, 60) < 0 ? errno : 0);
  int status = 0;
  waitpid(child, &status, 0);
  t.line("vfork " + std::to_string(WEXITSTATUS(status)));

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  fd = CALL(open(path, O_RDONLY));
  CALL(close(fd));
  posix_spawn_file_actions_adddup2(&actions, fd, 0);
  const char* const arguments[] = {"/bin/true", nullptr};
  pid_t pid = 0;
  const int error = CALL(
      posix_spawn(&pid, "/bin/true", &actions, nullptr, const_cast<char**>(arguments), environ));
  // Before glibc 2.24, posix_spawn succeeds even if the child then fails, so the child must be
  // reaped.
  if (error == 0) {
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
  }
  EXPECT_TRUE(error == EBADF || (error == 0 && WEXITSTATUS(status) == 127)) << error;
  posix_spawn_file_actions_destroy(&actions);
}

PARITY(Process, OffsetIsSharedWithAChild) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  const int copy = CALL(dup(fd));
  const int apart = CALL(open(t / "a", O_RDONLY | O_CLOEXEC));
  peek(t, fd);
  t.in_child([&] {
    peek(t, fd);
    peek(t, copy);
    peek(t, apart);
    CALL(lseek(copy, 100, SEEK_SET));
    CALL(close(fd));
    CALL(fcntl(apart, F_GETFD));
    const int own = CALL(open(t / "a", O_RDONLY));
    t.expect_served(own);
    peek(t, own);
  });
  peek(t, fd);
  peek(t, copy);
  peek(t, apart);
  CALL(fcntl(apart, F_GETFD));
}

PARITY(Process, GrandchildrenShareToo) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  t.in_child([&] {
    peek(t, fd);
    t.in_child([&] {
      peek(t, fd);
      const int own = CALL(open(t / "a", O_RDONLY));
      peek(t, own);
    });
    peek(t, fd);
  });
  peek(t, fd);
}

PARITY(Process, SpawnedShellReadsTheSharedOffset) {
  const int fd = CALL(open(t.text("a", "one\ntwo\nthree\nfour\n"), O_RDONLY));
  char got[4];
  CALL(read(fd, got, 4));
  t.line(run("read x; echo $x", fd));
  CALL(lseek(fd, 0, SEEK_CUR));
  t.line(run("cat", fd));
  CALL(lseek(fd, 0, SEEK_CUR));
  const int kept = CALL(open(t / "a", O_RDONLY | O_CLOEXEC));
  t.line(run(("cat <&" + std::to_string(kept)).c_str(), fd));
  peek(t, kept);
  const int inherited = CALL(open(t / "a", O_RDONLY));
  t.line(run(("cat <&" + std::to_string(inherited)).c_str(), kept));
  CALL(lseek(inherited, 0, SEEK_CUR));
}

PARITY(Process, PopenAndSystem) {
  const int fd = CALL(open(t.text("a", "one\ntwo\nthree\n"), O_RDONLY));
  peek(t, fd);
  const int status = CALL(system(("head -c 2 <&" + std::to_string(fd) + " >/dev/null").c_str()));
  (void)status;
  CALL(lseek(fd, 0, SEEK_CUR));
  const int second = CALL(open(t / "a", O_RDONLY));
  FILE* const pipe = STDIO(nullptr, popen(("cat <&" + std::to_string(second)).c_str(), "r"));
  char line[100] = {};
  CALL(fgets(line, sizeof line, pipe));
  t.line(line);
  CALL(pclose(pipe));
  CALL(lseek(second, 0, SEEK_CUR));
  CALL(system(nullptr) != 0);
}

PARITY(Process, WordexpGivesServedFilesToItsCommands) {
  const int fd = CALL(open(t.text("a", "one two\nthree\n"), O_RDONLY));
  peek(t, fd);
  for (const int flags : {0 + WRDE_NOCMD, 0}) {
    for (const auto& words : {"$(head -c 2 <&" + std::to_string(fd) + ") $((1 + 2))",
                              "`cat <&" + std::to_string(fd) + "`", std::string("'a b' c")}) {
      ::wordexp_t expanded{};
      const int result = CALL(wordexp(words.c_str(), &expanded, flags));
      for (std::size_t i = 0; i < expanded.we_wordc; ++i) t.line(expanded.we_wordv[i]);
      if (result == 0) wordfree(&expanded);
      CALL(lseek(fd, 0, SEEK_CUR));
    }
  }
}

PARITY(Process, FailedExecLeavesEverything) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  peek(t, fd);
  CALL(execl(t / "none", "x", static_cast<char*>(nullptr)));
  EXPECT_EQ(errno, ENOENT);
  peek(t, fd);
  CALL(execlp(t / "none", "x", static_cast<char*>(nullptr)));
  const char* const arguments[] = {"x", nullptr};
  CALL(execv(t / "none", const_cast<char**>(arguments)));
  CALL(execvp("", const_cast<char**>(arguments)));
  CALL(fexecve(fd, const_cast<char**>(arguments), environ));
  EXPECT_EQ(errno, EACCES);
  peek(t, fd);
}

PARITY(Process, ScriptOnTheCoveredTreeIsRun) {
  const char* const path = t.text("script", "#!/bin/sh\necho ran $1\n");
  CALL(close(CALL(open(path, O_RDONLY))));
  CALL(chmod(path, 0755));
  t.line(run((std::string(path) + " well").c_str(), 0));
  const int fd = CALL(open(path, O_RDONLY));
  const int status = t.in_child([&] {
    const char* const arguments[] = {"script", "by fd", nullptr};
    CALL(dup2(CALL(open("/dev/null", O_WRONLY)), 1));
    fexecve(fd, const_cast<char**>(arguments), environ);
    t.line("fexecve failed");
  });
  EXPECT_EQ(status, 0);
}

PARITY(Rights, OthersAreRefused) {
  const char* const secret = t.file("secret", 100, 0600);
  const char* const open_to_all = t.file("all", 100, 0644);
  t.dir("closed");
  t.file("closed/f", 50);
  CALL(chmod(t / "closed", 0700));
  CALL(close(CALL(open(secret, O_RDONLY))));
  CALL(close(CALL(open(t / "closed/f", O_RDONLY))));
  t.in_child([&] {
    CALL(setgid(65534));
    CALL(setuid(65534));
    CALL(open(secret, O_RDONLY));
    EXPECT_EQ(errno, EACCES);
    CALL(open(t / "closed/f", O_RDONLY));
    EXPECT_EQ(errno, EACCES);
    struct stat st {};
    CALL(stat(t / "closed/f", &st));
    CALL(access(secret, R_OK));
    CALL(fopen(secret, "r"));
    peek(t, CALL(open(open_to_all, O_RDONLY)));
  });
  t.in_child([&] {
    const int kept = CALL(open(secret, O_RDONLY));
    CALL(seteuid(65534));
    CALL(open(secret, O_RDONLY));
    EXPECT_EQ(errno, EACCES);
    CALL(access(secret, R_OK));
    peek(t, kept);
    CALL(seteuid(0));
    peek(t, CALL(open(secret, O_RDONLY)));
  });
  t.in_child([&] {
    CALL(setfsuid(65534));
    CALL(open(secret, O_RDONLY));
    EXPECT_EQ(errno, EACCES);
  });
}

PARITY(Rights, DirectorySearchRightAsksTheRealIdentity) {
  const char* const secret = t.file("secret", 100, 0600);
  t.in_child([&] {
    CALL(setresuid(65534, 0, 0));
    CALL(access(secret, R_OK));
    EXPECT_EQ(errno, EACCES);
    CALL(eaccess(secret, R_OK));
    CALL(faccessat(AT_FDCWD, secret, R_OK, AT_EACCESS));
    peek(t, CALL(open(secret, O_RDONLY)));
  });
}

PARITY(Rights, ChrootMeansOtherFiles) {
  t.dir("jail");
  t.text("f", "outside");
  const int fd = CALL(open(t / "f", O_RDONLY));
  t.in_child([&] {
    CALL(chroot(t / "jail"));
    CALL(open(t / "f", O_RDONLY));
    EXPECT_EQ(errno, ENOENT);
    peek(t, fd);
  });
}
