// The program under test: `preload_helper COMMAND ARGUMENTS...`. If everything is right, it exits
// with 0. Otherwise it reports the fault.
#include "tests/preload/helper.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tests/support/preload_content.h"

using cube::preload::byte_of;
using cube::preload::number_of;
using cube::preload::size_of;

void check_fd(int fd, int number, std::size_t from) {
  char got[65536];
  std::size_t at = from;
  while (true) {
    const ssize_t n = read(fd, got, sizeof got);
    CHECK(n >= 0);
    if (n == 0) break;
    for (ssize_t i = 0; i < n; ++i) {
      if (got[i] != byte_of(number, at + static_cast<std::size_t>(i))) {
        std::fprintf(stderr, "helper: wrong byte %zu of f%d\n", at + static_cast<std::size_t>(i),
                     number);
        _exit(1);
      }
    }
    at += static_cast<std::size_t>(n);
  }
  if (at != size_of(number)) std::fprintf(stderr, "helper: f%d ends at %zu\n", number, at);
  CHECK(at == size_of(number));
}
void check_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  check_fd(fd, number_of(path));
  CHECK(close(fd) == 0);
}
std::string file_in(const std::string& dir, int n) { return dir + "/f" + std::to_string(n); }
std::string random_file(const std::string& dir, int files, std::mt19937& random) {
  return file_in(dir, static_cast<int>(random() % static_cast<unsigned>(files)));
}

int do_end(const Arguments& a) {
  for (int i = 0; i < std::stoi(a[2]); ++i) check_file(a[1]);
  if (a[0] == "_exit") _exit(0);
  if (a[0] == "_Exit") _Exit(0);
  if (a[0] == "quick_exit") quick_exit(0);
  if (a[0] == "exit_group") syscall(SYS_exit_group, 0);
  if (a[0] == "abort") abort();
  if (a[0] == "kill") kill(getpid(), SIGKILL);
  if (a[0] == "segv") raise(SIGSEGV);
  return 0;
}

namespace {

// read FILES: each whole, checked
int do_read(const Arguments& a) {
  for (const auto& path : a) check_file(path);
  return 0;
}

// check FD NUMBER FROM: an inherited fd
int do_check(const Arguments& a) {
  check_fd(std::stoi(a[0]), std::stoi(a[1]), std::stoul(a[2]));
  return 0;
}

// limit FILE: reaches the fd limit; the results are the same as without the shim
int do_limit(const Arguments& a) {
  const rlimit limit{20, 20};
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::vector<int> fds;
  int fd = 0;
  while ((fd = open(a[0].c_str(), O_RDONLY)) >= 0) fds.push_back(fd);
  std::printf("opened %zu, last %d, then %s\n", fds.size(), fds.back(), strerrorname_np(errno));
  std::printf("dup %d %s\n", dup(fds[0]), strerrorname_np(errno));
  std::printf("F_DUPFD %d %s\n", fcntl(fds[0], F_DUPFD, 25), strerrorname_np(errno));
  std::printf("dup2 %d %s\n", dup2(fds[0], 20), strerrorname_np(errno));
  char byte[4];
  std::printf("read %zd\n", read(fds[0], byte, 4));
  // The next calls need a kernel file.
  std::printf("fsync %d\n", fsync(fds[0]));
  std::printf("fcntl %d\n", fcntl(fds[1], F_SETFL, 0));
  const pid_t child = fork();
  if (child == 0) {
    char more[4];
    _exit(read(fds[2], more, 4) == 4 && more[1] == byte_of(number_of(a[0]), 1) ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("child %d\n", status);
  std::printf("at %ld\n", static_cast<long>(lseek(fds[2], 0, SEEK_CUR)));
  close(fds.back());
  std::printf("again %d\n", open(a[0].c_str(), O_RDONLY));
  FILE* const stream = fopen(a[0].c_str(), "r");
  std::printf("fopen %s %s\n", stream == nullptr ? "null" : "stream", strerrorname_np(errno));
  return 0;
}

// hits FILE TIMES: warm; for strace
int do_hits(const Arguments& a) {
  check_file(a[0]);
  (void)!write(1, "MARK", 4);
  char got[4096];
  for (int i = 0; i < std::stoi(a[1]); ++i) {
    struct stat st {};
    const int fd = open(a[0].c_str(), O_RDONLY | O_CLOEXEC);
    fstat(fd, &st);
    isatty(fd);
    lseek(fd, 0, SEEK_CUR);
    read(fd, got, sizeof got);
    read(fd, got, sizeof got);
    pread(fd, got, 10, 0);
    close(fd);
  }
  (void)!write(1, "MARK", 4);
  return 0;
}

// identity FILE SECRET
int do_identity(const Arguments& a) {
  check_file(a[0]);
  check_file(a[1]);
  const int kept = open(a[0].c_str(), O_RDONLY);
  CHECK(setgid(65534) == 0 && setuid(65534) == 0);
  check_fd(kept, number_of(a[0]));
  CHECK(open(a[1].c_str(), O_RDONLY) < 0 && errno == EACCES);
  check_file(a[0]);
  char link[100], target[400];
  const int fd = open(a[0].c_str(), O_RDONLY);
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, target, sizeof target - 1);
  CHECK(n > 0);
  target[n] = 0;
  CHECK(a[0] == target);
  return 0;
}

// region PATH FILE: the region exists while this process does
int do_region(const Arguments& a) {
  check_file(a[1]);
  CHECK(access(a[0].c_str(), F_OK) == 0);
  const pid_t child = fork();
  if (child == 0) {
    check_file(a[1]);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  CHECK(access(a[0].c_str(), F_OK) == 0);
  return 0;
}

// job: what the environment says
int do_job(const Arguments&) {
  const char* const job = getenv("CUBESHIM_JOB");
  std::printf("%s\n", job != nullptr ? job : "none");
  return 0;
}

// old-action: prints "ready", then the size of the file that each line "open PATH" names.
// Meanwhile, its stack holds the kernel's answer about a signal's action, which looks like the
// frame of a signal handler.
int do_old_action(const Arguments&) {
  std::signal(SIGUSR1, [](int) {});
  unsigned long said[64] = {};
  CHECK(syscall(SYS_rt_sigaction, SIGUSR1, nullptr, said, 8) == 0);
  std::puts("ready");
  std::fflush(stdout);
  char line[4096], piece[65536];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    std::string path(line + std::strlen("open "));
    path.pop_back();
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    long size = 0;
    for (ssize_t n = 1; n > 0; size += n) CHECK((n = read(fd, piece, sizeof piece)) >= 0);
    close(fd);
    std::printf("%ld\n", size);
    std::fflush(stdout);
  }
  asm volatile("" : : "r"(said) : "memory");
  return 0;
}

Commands own_commands() {
  return {{"old-action", do_old_action},
          {"read", do_read},
          {"check", do_check},
          {"end", do_end},
          {"limit", do_limit},
          {"hits", do_hits},
          {"identity", do_identity},
          {"region", do_region},
          {"job", do_job},
          {"nothing", [](const Arguments&) { return 0; }}};
}

}  // namespace

int main(int argc, char** argv) {
  Commands commands = own_commands();
  commands.merge(child_commands());
  commands.merge(thread_commands());
  commands.merge(hostile_commands());
  const auto command = argc > 1 ? commands.find(argv[1]) : commands.end();
  if (command == commands.end()) return 100;
  return command->second(Arguments(argv + 2, argv + argc));
}
