// A program under the library that executes commands. Each line of input is a command, and each
// answer is one line.
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "tests/preload/freshness/events.h"

namespace {

// After each of these calls, a process no longer serves files, although it keeps all rights that it
// needs.
bool become(const std::string& how) {
  const gid_t group = 5;
  if (how == "setegid") return setegid(group) == 0;
  if (how == "setgroups") return setgroups(1, &group) == 0;
  if (how == "setgroups_by_number") return syscall(SYS_setgroups, 1, &group) == 0;
  if (how == "seteuid_and_back") return seteuid(1) == 0 && seteuid(0) == 0;
  if (how == "chroot") return chroot("/") == 0;
  if (how == "unshare") return unshare(CLONE_FS) == 0;
  return false;
}

// Creates nothing in the parent's memory that outlives the child.
[[gnu::noinline]] bool happens_in_vfork(const cube::freshness::Event& event,
                                        const std::string& data) {
  const pid_t child = vfork();
  if (child == 0) {
    event.happen(data);
    _exit(0);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool happens_in_fork(const cube::freshness::Event& event, const std::string& data) {
  const pid_t child = fork();
  if (child == 0) {
    event.happen(data);
    exit(0);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

int main() {
  using namespace cube::freshness;
  int fd = -1;
  for (std::string command, what, data; std::cin >> command;) {
    std::string answer = "done";
    if (command == "job") {
      answer = getenv("CUBESHIM_JOB");
    } else if (command == "see") {
      std::cin >> what;
      answer = see_path(what);
    } else if (command == "open") {
      std::cin >> what;
      if (fd >= 0) close(fd);
      fd = open(what.c_str(), O_RDONLY | O_CLOEXEC);
      answer = see_fd(fd);
    } else if (command == "see-open") {
      answer = see_fd(fd);
    } else if (command == "happen") {
      std::cin >> what >> data;
      event_named(what).happen(data);
    } else if (command == "happen-in-fork" || command == "happen-in-vfork") {
      std::cin >> what >> data;
      const auto in_child = command == "happen-in-fork" ? happens_in_fork : happens_in_vfork;
      if (!in_child(event_named(what), data)) answer = "failed";
    } else if (command == "become") {
      std::cin >> what;
      if (!become(what)) answer = "refused";
    } else {
      answer = "unknown command";
    }
    std::cout << answer << std::endl;
  }
  return 0;
}
