// The program under test: `preload_helper COMMAND ARGUMENTS...`. Ends with 0 where all is well, else says what is not.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "tests/preload/helper_hostile.h"
#include "tests/support/meanwhile.h"
#include "tests/support/preload_content.h"

using cube::preload::byte_of;
using cube::preload::content_of;
using cube::preload::number_of;
using cube::preload::size_of;
using cube::tests::Meanwhile;

namespace {

#define CHECK(condition)                                                                        \
  do {                                                                                          \
    if (!(condition)) {                                                                         \
      std::fprintf(stderr, "helper: line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
      _exit(1);                                                                                 \
    }                                                                                           \
  } while (false)

void check_fd(int fd, int number, std::size_t from = 0) {
  char got[65536];
  std::size_t at = from;
  while (true) {
    const ssize_t n = read(fd, got, sizeof got);
    CHECK(n >= 0);
    if (n == 0) break;
    for (ssize_t i = 0; i < n; ++i) {
      if (got[i] != byte_of(number, at + static_cast<std::size_t>(i))) {
        std::fprintf(stderr, "helper: wrong byte %zu of f%d\n", at + static_cast<std::size_t>(i), number);
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

// end HOW FILE TIMES: reads, then ends like that
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

// children HOW FILE TIMES CHILDREN: forked children that end like that; the parent reads nothing
int do_children(const Arguments& a) {
  for (int i = 0; i < std::stoi(a[3]); ++i) {
    const pid_t child = fork();
    if (child == 0) return do_end(a);
    waitpid(child, nullptr, 0);
  }
  return 0;
}

// threads DIR FILES SECONDS*10: many threads open, read, pread, stat, dup, map and close the same and different files
int do_threads(const Arguments& a) {
  const int files = std::stoi(a[1]);
  const int rounds = std::stoi(a[2]);
  std::vector<std::thread> threads;
  for (unsigned id = 0; id < 8; ++id) {
    threads.emplace_back([&, id] {
      std::mt19937 random(id);
      for (int i = 0; i < rounds; ++i) {
        const int n = static_cast<int>(random() % static_cast<unsigned>(files));
        const std::string path = file_in(a[0], n);
        const int fd = open(path.c_str(), O_RDONLY);
        CHECK(fd >= 0);
        struct stat st {};
        CHECK(fstat(fd, &st) == 0 && static_cast<std::size_t>(st.st_size) == size_of(n));
        const int copy = random() % 3 == 0 ? dup(fd) : -1;
        if (random() % 4 == 0 && st.st_size > 0) {
          const auto* const at = static_cast<const char*>(mmap(nullptr, st.st_size, PROT_READ, MAP_SHARED, fd, 0));
          CHECK(at != MAP_FAILED);
          const std::size_t spot = random() % size_of(n);
          CHECK(at[spot] == byte_of(n, spot));
          CHECK(munmap(const_cast<char*>(at), st.st_size) == 0);
        }
        check_fd(fd, n);
        if (copy >= 0) {
          CHECK(lseek(copy, 0, SEEK_CUR) == static_cast<off_t>(size_of(n)));
          CHECK(lseek(copy, 0, SEEK_SET) == 0);
          CHECK(close(fd) == 0);
          check_fd(copy, n);
          CHECK(close(copy) == 0);
        } else {
          CHECK(close(fd) == 0);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return 0;
}

// close-race DIR FILES ROUNDS: some threads close and reopen numbers that others read and seek. A reader may see EBADF
// or another file, but only ever whole, right bytes of some file.
int do_close_race(const Arguments& a) {
  const int files = std::stoi(a[1]);
  const Meanwhile readers(4, [&](std::mt19937& random) {
    char got[64];
    const int fd = 50 + static_cast<int>(random() % 8);
    const ssize_t n = pread(fd, got, sizeof got, 0);
    CHECK(n >= 0 || errno == EBADF);
    if (n <= 0) return;
    bool known = false;
    for (int f = 0; f < files && !known; ++f) {
      known = static_cast<std::size_t>(n) == std::min<std::size_t>(sizeof got, size_of(f));
      for (ssize_t i = 0; i < n && known; ++i) known = got[i] == byte_of(f, static_cast<std::size_t>(i));
    }
    CHECK(known);
    lseek(fd, 0, SEEK_SET);
    struct stat st {};
    fstat(fd, &st);
  });
  std::vector<std::thread> closers;
  for (unsigned id = 0; id < 2; ++id) {
    closers.emplace_back([&, id] {
      std::mt19937 random(100 + id);
      for (int i = 0; i < std::stoi(a[2]); ++i) {
        const int fd = open(random_file(a[0], files, random).c_str(), O_RDONLY);
        CHECK(fd >= 0);
        const int to = 50 + static_cast<int>(random() % 8);
        CHECK(dup2(fd, to) == to);
        CHECK(close(fd) == 0);
        if (random() % 2 == 0) close(to);
      }
    });
  }
  for (auto& thread : closers) thread.join();
  return 0;
}

// fork-threads DIR FILES FORKS: forks while threads read; each child reads all and its inherited fd
int do_fork_threads(const Arguments& a) {
  const int files = std::stoi(a[1]);
  const Meanwhile readers(4, [&](std::mt19937& random) { check_file(random_file(a[0], files, random)); });
  for (int i = 0; i < std::stoi(a[2]); ++i) {
    const int fd = open(file_in(a[0], 7).c_str(), O_RDONLY);
    char head[100];
    CHECK(read(fd, head, 100) == 100);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(20);
      char more[50];
      CHECK(read(fd, more, 50) == 50 && more[0] == byte_of(7, 100));
      for (int n = 0; n < files; ++n) check_file(file_in(a[0], n));
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) std::fprintf(stderr, "helper: child %d of %d ended with %x\n", i, std::stoi(a[2]), status);
    CHECK(status == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 150);
    check_fd(fd, 7, 150);
    CHECK(close(fd) == 0);
  }
  return 0;
}

// vfork FILE PROGRAM: as CPython's subprocess: vfork, dup2, close_range in the child, exec; the parent's fds stay right
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
    // Served anew in the parent while the child may still be running.
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

// vfork-close FILE: while a child of vfork runs, another thread opens FILE, and the child closes that number by syscall()
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

// vfork-write FILE ABSENT SOURCE: the child opens FILE, and cat writes SOURCE to it; the parent has looked for ABSENT before
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

// vfork-threads DIR FILES PROGRAM: vforked children close every fd while other threads read
int do_vfork_threads(const Arguments& a) {
  const int files = std::stoi(a[1]);
  const Meanwhile readers(3, [&](std::mt19937& random) { check_file(random_file(a[0], files, random)); });
  const char* const arguments[] = {a[2].c_str(), "nothing", nullptr};
  for (int i = 0; i < 200; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      // Long enough for the others to open files meanwhile.
      for (int fd = 3; fd < 300; ++fd) close(fd);
      usleep(200);
      close_range(3, ~0U, 0);
      execv(a[2].c_str(), const_cast<char**>(arguments));
      _exit(93);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  return 0;
}

// signals DIR FILES: a timer's handler opens, reads and closes covered files in the midst of everything
std::string g_signal_dir;
std::atomic<int> g_signals{0};
void on_signal(int) {
  const int saved = errno;
  char path[300], got[512];
  const int n = g_signals.fetch_add(1) % cube::preload::k_files;
  std::snprintf(path, sizeof path, "%s/f%d", g_signal_dir.c_str(), n);
  const int fd = open(path, O_RDONLY);
  if (fd < 0) {
    const char message[] = "helper: open failed in the handler\n";
    (void)!write(2, message, sizeof message - 1);
    _exit(1);
  }
  const ssize_t count = read(fd, got, sizeof got);
  for (ssize_t i = 0; i < count; ++i) {
    if (got[i] != byte_of(n, static_cast<std::size_t>(i))) _exit(3);
  }
  close(fd);
  errno = saved;
}
int do_signals(const Arguments& a) {
  g_signal_dir = a[0];
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval timer{{0, 300}, {0, 300}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  for (int i = 0; i < 1500; ++i) {
    check_file(file_in(a[0], i % std::stoi(a[1])));
    const int fd = open(file_in(a[0], 7).c_str(), O_RDONLY);
    const int copy = dup(fd);
    CHECK(copy >= 0);
    CHECK(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);  // becomes a kernel file
    check_fd(copy, 7);
    close(copy);
    close(fd);
  }
  const itimerval none{};
  setitimer(ITIMER_REAL, &none, nullptr);
  std::printf("signals %d\n", g_signals.load());
  return g_signals.load() > 20 ? 0 : 1;
}

// limit FILE: the fd limit is reached; the same results as without the shim
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
  // These need a kernel file.
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

// region PATH FILE: it is there while we are
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

// exec-list FILE PROGRAM: every exec with an inherited fd
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

const std::map<std::string, int (*)(const Arguments&)> k_commands = {
    {"read", do_read},
    {"check", do_check},
    {"end", do_end},
    {"children", do_children},
    {"threads", do_threads},
    {"close-race", do_close_race},
    {"vfork", do_vfork},
    {"vfork-close", do_vfork_close},
    {"vfork-write", do_vfork_write},
    {"fork-threads", do_fork_threads},
    {"signals", do_signals},
    {"limit", do_limit},
    {"hits", do_hits},
    {"identity", do_identity},
    {"region", do_region},
    {"vfork-threads", do_vfork_threads},
    {"job", do_job},
    {"exec", do_exec},
    {"cancel", do_cancel},
    {"throw", do_throw},
    {"lowest", do_lowest},
    {"nothing", [](const Arguments&) { return 0; }},
};

}  // namespace

int main(int argc, char** argv) {
  const auto command = argc > 1 ? k_commands.find(argv[1]) : k_commands.end();
  if (command == k_commands.end()) return 100;
  return command->second(Arguments(argv + 2, argv + argc));
}
