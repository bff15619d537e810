// Programs that make file calls at points where a profiler could do harm. `profile_host WHAT FILE`;
// hosts_test.py checks the recordings.
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

// A function of a library that has no tables for unwinders.
extern "C" void profile_host_call(void (*function)());

namespace {

const char* g_file = nullptr;
// Called at the next sched_yield() of this program or of the library.
std::atomic<void (*)()> g_at_yield{nullptr};
// Called during a fork, after the handler of the library.
void (*g_at_fork)() = nullptr;

void check(bool is_true, const char* what) {
  if (is_true) return;
  std::perror(what);
  _exit(1);
}

void read_file() {
  char text[64];
  const int fd = open(g_file, O_RDONLY);
  check(fd >= 0 && read(fd, text, sizeof text) == sizeof text && close(fd) == 0, "read");
}

int wait_for(pid_t child) {
  int status = -1;
  check(waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

// A forked child reads the file. Returns its status.
int read_in_child() {
  const pid_t child = fork();
  if (child == 0) {
    read_file();
    _exit(0);
  }
  return wait_for(child);
}

// Uses the smallest stack that libc allows, also for an exec that fails, before which the profile
// is written.
int small_stack() {
  pthread_attr_t small;
  pthread_attr_init(&small);
  check(pthread_attr_setstacksize(&small, 16384) == 0, "stack size");
  pthread_t thread;
  const auto body = [](void*) -> void* {
    struct stat st {};
    for (int i = 0; i < 3; ++i) read_file();
    check(stat(g_file, &st) == 0, "stat");
    execl("/nonexistent/program", "program", nullptr);
    read_file();
    return nullptr;
  };
  check(pthread_create(&thread, &small, body, nullptr) == 0, "thread");
  return pthread_join(thread, nullptr);
}

// A handler's stack with room for the signal, libc and the library, above an inaccessible page.
int alternate_stack() {
  const std::size_t page = 4096, size = (getauxval(AT_MINSIGSTKSZ) + 8192 + page - 1) / page * page;
  auto* const memory =
      static_cast<char*>(mmap(nullptr, size + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  check(mprotect(memory + page, size, PROT_READ | PROT_WRITE) == 0, "mprotect");
  stack_t stack{};
  stack.ss_sp = memory + page;
  stack.ss_size = size;
  check(sigaltstack(&stack, nullptr) == 0, "sigaltstack");
  struct sigaction action {};
  action.sa_handler = [](int) { read_file(); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  read_file();
  for (int i = 0; i < 3; ++i) raise(SIGUSR1);
  return 0;
}

// Makes children that share this process's memory but have their own fds, which they close and
// change. One starts a program, and one fails to.
int vforked_child() {
  char text[8];
  const int fd = open(g_file, O_RDONLY), other = open("/dev/null", O_RDONLY);
  check(read(fd, text, sizeof text) == sizeof text, "read");
  const char* const programs[] = {"/nonexistent/program", "/bin/true"};
  for (const char* const program : programs) {
    const pid_t child = vfork();
    if (child == 0) {
      dup2(other, fd);
      close_range(3, ~0U, 0);
      execl(program, "program", nullptr);
      _exit(7);
    }
    wait_for(child);
    for (int i = 0; i < 10; ++i) check(pread(fd, text, sizeof text, i) == sizeof text, "pread");
  }
  return 0;
}

// A thread that asks the loader for its libraries, and keeps the loader's lock until the end.
class LoaderThread {
 public:
  LoaderThread() {
    check(pthread_create(&thread_, nullptr, &body, this) == 0, "thread");
    while (!is_inside_) usleep(100);
  }
  void end() {
    may_go_ = true;
    pthread_join(thread_, nullptr);
  }

 private:
  static void* body(void* own) {
    dl_iterate_phdr(
        [](struct ::dl_phdr_info*, std::size_t, void* given) {
          auto& thread = *static_cast<LoaderThread*>(given);
          thread.is_inside_ = true;
          while (!thread.may_go_) usleep(100);
          return 1;
        },
        own);
    return nullptr;
  }
  pthread_t thread_{};
  std::atomic<bool> is_inside_{false}, may_go_{false};
};

// A child is forked and a file is read while another thread has the loader's lock.
int loader_lock() {
  LoaderThread loader;
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    read_file();
    _exit(0);
  }
  const int status = wait_for(child);
  alarm(120);
  read_file();
  loader.end();
  return status;
}

// A file is read while another thread keeps the loader's lock for long, and later while a thread
// gives the lock back as soon as the library waits for it.
int later_loads() {
  LoaderThread slow;
  read_file();
  slow.end();
  read_file();
  static LoaderThread quick;
  g_at_yield = [] { quick.end(); };
  read_file();
  if (const auto at_yield = g_at_yield.exchange(nullptr)) at_yield();
  return 0;
}

// A child is forked, and reads a file. A handler of the fork reads the file, too (g_at_fork).
int reading_fork_handler() {
  g_at_fork = read_file;
  return read_in_child();
}

// Tells the id of a thread, which writes the profile before an exec that fails. After a signal, a
// child is forked.
int fork_during_write() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  read_file();
  pthread_t thread;
  const auto body = [](void*) -> void* {
    std::printf("%ld\n", syscall(SYS_gettid));
    std::fflush(stdout);
    char go = 0;
    check(read(STDIN_FILENO, &go, 1) == 1, "read");
    execl("/nonexistent/program", "program", nullptr);
    return nullptr;
  };
  check(pthread_create(&thread, nullptr, body, nullptr) == 0, "thread");
  int signal = 0;
  sigwait(&signals, &signal);
  const int status = read_in_child();
  std::printf("done\n");
  std::fflush(stdout);
  pthread_join(thread, nullptr);
  return status;
}

// A thread with a pending cancellation makes a call that is not a cancellation point, where
// libunwind must open a library in order to continue.
int cancelled_thread() {
  static std::atomic<bool> is_told{false}, is_past{false};
  pthread_t thread;
  const auto body = [](void*) -> void* {
    while (!is_told) sched_yield();
    profile_host_call([] {
      struct stat st {};
      check(lstat(g_file, &st) == 0, "lstat");
    });
    is_past = true;
    pthread_testcancel();
    return nullptr;
  };
  alarm(120);
  check(pthread_create(&thread, nullptr, body, nullptr) == 0, "thread");
  pthread_cancel(thread);
  is_told = true;
  void* result = nullptr;
  pthread_join(thread, &result);
  struct stat st {};
  check(lstat(g_file, &st) == 0, "lstat");
  return is_past && result == PTHREAD_CANCELED ? 0 : 1;
}

// A call fails where libunwind makes system calls of its own that fail, too.
int failed_call() {
  static const std::string path = std::string(g_file) + "/name";
  static int error = 0;
  profile_host_call([] {
    struct stat st {};
    check(lstat(path.c_str(), &st) != 0, "lstat");
    error = errno;
  });
  return error == ENOTDIR ? 0 : 1;
}

// Handlers jump out of calls. After that, some calls fail, and a child is forked.
int jumps() {
  static sigjmp_buf place;
  static volatile int count = 0;
  struct sigaction action {};
  action.sa_handler = [](int) {
    count = count + 1;
    siglongjmp(place, 1);
  };
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 150}, {0, 150}}, never{};
  struct stat st {};
  setitimer(ITIMER_REAL, &often, nullptr);
  sigsetjmp(place, 1);
  while (count < 1000) stat(g_file, &st);
  setitimer(ITIMER_REAL, &never, nullptr);
  for (int i = 0; i < 100; ++i)
    check(stat((std::string(g_file) + "-absent").c_str(), &st) != 0, "stat");
  return read_in_child();
}

// Forks that bypass libc, so that the library is not notified: of this process, and of the child,
// in which the library is off.
int unseen_forks() {
  const auto fork_unseen = [] {
    return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  };
  for (int i = 0; i < 3; ++i) read_file();
  const pid_t child = fork_unseen();
  if (child == 0) {
    for (int i = 0; i < 5; ++i) read_file();
    const pid_t grandchild = fork_unseen();
    if (grandchild != 0 && wait_for(grandchild) != 0) _exit(2);
    for (int i = 0; grandchild == 0 && i < 7; ++i) read_file();
    execl("/bin/true", "true", nullptr);
    _exit(1);
  }
  return wait_for(child);
}

int written_file() {
  const std::string path = std::string(g_file) + "-written";
  for (const int flags : {O_WRONLY | O_CREAT, O_RDWR, O_PATH})
    close(open(path.c_str(), flags, 0644));
  return 0;
}

// By then the fd of a file has become that of a pipe.
int reused_number() {
  char text[8];
  const int fd = open(g_file, O_RDONLY);
  check(read(fd, text, sizeof text) == sizeof text && close(fd) == 0, "read");
  int ends[2];
  check(pipe(ends) == 0 && ends[0] == fd, "pipe");
  check(write(ends[1], text, sizeof text) == sizeof text &&
            read(fd, text, sizeof text) == sizeof text,
        "read a pipe");
  return 0;
}

// Names one file by several spellings of its path.
int looked_at_first() {
  const std::string path = g_file;
  const std::size_t slash = path.rfind('/');
  struct stat st {};
  check(chdir(path.substr(0, slash).c_str()) == 0, "chdir");
  check(stat(("." + path.substr(slash)).c_str(), &st) == 0, "stat");
  check(open(path.c_str() + slash + 1, O_RDONLY) >= 0, "open");
  return 0;
}

int opened_from_root() { return chdir("/") == 0 && open(g_file + 1, O_RDONLY) >= 0 ? 0 : 1; }

int left_open() {
  char text[64];
  return read(open(g_file, O_RDONLY), text, sizeof text) == sizeof text ? 0 : 1;
}

// Handlers that run before a fork run in the reverse order of their registration, and the
// constructors of the library run later than this function.
__attribute__((section(".preinit_array"), used)) void (*const g_register)() = [] {
  pthread_atfork(
      [] {
        if (g_at_fork != nullptr) g_at_fork();
      },
      nullptr, nullptr);
};

}  // namespace

int sched_yield() noexcept {
  if (const auto at_yield = g_at_yield.exchange(nullptr)) at_yield();
  return static_cast<int>(syscall(SYS_sched_yield));
}

int main(int count, char** words) {
  check(count == 3, "profile_host WHAT FILE");
  g_file = words[2];
  const std::string what = words[1];
  return what == "small_stack"            ? small_stack()
         : what == "alternate_stack"      ? alternate_stack()
         : what == "vforked_child"        ? vforked_child()
         : what == "loader_lock"          ? loader_lock()
         : what == "later_loads"          ? later_loads()
         : what == "reading_fork_handler" ? reading_fork_handler()
         : what == "fork_during_write"    ? fork_during_write()
         : what == "cancelled_thread"     ? cancelled_thread()
         : what == "failed_call"          ? failed_call()
         : what == "jumps"                ? jumps()
         : what == "unseen_forks"         ? unseen_forks()
         : what == "written_file"         ? written_file()
         : what == "reused_number"        ? reused_number()
         : what == "looked_at_first"      ? looked_at_first()
         : what == "opened_from_root"     ? opened_from_root()
         : what == "left_open"            ? left_open()
                                          : 9;
}
