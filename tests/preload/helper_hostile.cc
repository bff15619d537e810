// The commands of preload_helper that unwind frames of the library or interrupt it.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>

#include "tests/preload/helper.h"
#include "tests/support/preload_content.h"

namespace {

// Starts a timer whose handler interrupts this process at this interval in microseconds. 0 stops
// the timer.
void alarm_every(long microseconds, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_REAL, &every, nullptr);
}

// Cancels threads that repeat `call`. It depends on chance whether the cancellation finds a thread
// in the kernel, so many threads are needed.
bool is_cancelled(const std::function<void()>& call, int threads) {
  struct Shared {
    const std::function<void()>* call;
    std::atomic<bool> has_begun{false};
  };
  for (int i = 0; i < threads; ++i) {
    Shared shared{.call = &call};
    pthread_t thread;
    const auto repeat = [](void* of) -> void* {
      auto& mine = *static_cast<Shared*>(of);
      while (true) {
        mine.has_begun.store(true, std::memory_order_release);
        (*mine.call)();
      }
    };
    if (pthread_create(&thread, nullptr, repeat, &shared) != 0) return false;
    while (!shared.has_begun.load(std::memory_order_acquire)) sched_yield();
    for (volatile int turn = 0; turn < i * 37 % 5000;) turn = turn + 1;
    pthread_cancel(thread);
    void* result = nullptr;
    if (pthread_join(thread, &result) != 0 || result != PTHREAD_CANCELED) return false;
  }
  return true;
}

// cancel FILE THREADS: for each of several calls that libc answers, cancels THREADS threads in it
int do_cancel(const Arguments& a) {
  const char* const path = a[0].c_str();
  const int threads = std::atoi(a[1].c_str());
  int ends[2];
  const int file = open(path, O_RDONLY), null = open("/dev/null", O_WRONLY);
  if (file < 0 || null < 0 || pipe(ends) != 0) return std::perror("helper"), 1;
  char got[16];
  const iovec part{got, sizeof got};
  const struct {
    const char* name;
    std::function<void()> call;
  } cases[] = {
      // A thread that ends between its open and its close leaves the file open, so most of these
      // calls open nothing.
      {"close", [&] { close(4000); }},
      {"open and close", [&] { close(open(path, O_RDONLY | O_DIRECTORY)); }},
      {"openat and close", [&] { close(openat(AT_FDCWD, path, O_WRONLY | O_DIRECTORY)); }},
      {"a read that waits", [&] { (void)!read(ends[0], got, sizeof got); }},
      {"a readv that waits", [&] { (void)!readv(ends[0], &part, 1); }},
      {"read", [&] { (void)!read(file, got, sizeof got); }},
      {"pread", [&] { (void)!pread(file, got, sizeof got, 0); }},
      {"preadv", [&] { (void)!preadv(file, &part, 1, 0); }},
      {"write", [&] { (void)!write(null, got, sizeof got); }},
      {"pwrite", [&] { (void)!pwrite(null, got, sizeof got, 0); }},
      {"writev", [&] { (void)!writev(null, &part, 1); }},
      {"fsync", [&] { fsync(file); }},
  };
  for (const auto& one : cases) {
    if (is_cancelled(one.call, threads)) continue;
    std::fprintf(stderr, "helper: a thread was not cancelled in %s\n", one.name);
    return 1;
  }
  return 0;
}

struct Thrown {};

// throw DIRECTORY: a filter of scandir throws an exception. Prints that it was caught.
int do_throw(const Arguments& a) {
  const auto lowest = [] {
    const int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
  };
  const int before = lowest();
  for (int i = 0; i < 3; ++i) {
    struct dirent** list = nullptr;
    bool is_caught = false;
    try {
      scandir(
          a[0].c_str(), &list, [](const struct dirent*) -> int { throw Thrown{}; }, nullptr);
    } catch (const Thrown&) {
      is_caught = true;
    }
    if (!is_caught)
      return std::fprintf(stderr, "helper: the exception did not come through scandir\n"), 1;
  }
  if (lowest() != before)
    return std::fprintf(stderr, "helper: scandir has left a directory open\n"), 1;
  std::puts("caught");
  return 0;
}

std::string g_served;

void open_and_close_in_handler(int) {
  const int saved = errno;
  char byte = 0;
  const int fd = open(g_served.c_str(), O_RDONLY);
  (void)!read(fd, &byte, 1);
  close(fd);
  errno = saved;
}

// lowest FILE ROUNDS: a handler opens the served FILE during calls that close an fd. Each call is
// made ROUNDS times. The next fd must be the lowest.
int do_lowest(const Arguments& a) {
  g_served = a[0];
  const int rounds = std::atoi(a[1].c_str());
  const int lowest = dup(STDERR_FILENO);
  close(lowest);
  alarm_every(40, open_and_close_in_handler);
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  const std::function<void()> closings[] = {
      [] { close(open("/dev/null", O_RDONLY)); },
      [] { std::fclose(std::fopen("/dev/null", "r")); },
      [] { closedir(opendir("/")); },
      [lowest] {
        open("/dev/null", O_RDONLY);
        close_range(static_cast<unsigned>(lowest), 300, 0);
      },
      [] { syscall(SYS_close, open("/dev/null", O_RDONLY)); },
      [] { syscall(SYS_close_range, open("/dev/null", O_RDONLY), 300, 0); },
  };
  int number = 0;
  for (const auto& closing : closings) {
    ++number;
    for (int i = 0; i < rounds; ++i) {
      closing();
      sigprocmask(SIG_BLOCK, &alarm, nullptr);
      const int fd = open(g_served.c_str(), O_RDONLY);
      if (fd != lowest)
        return std::fprintf(stderr, "helper: way %d, round %d: %d is not the lowest number, %d\n",
                            number, i, fd, lowest),
               1;
      close(fd);
      sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
    }
  }
  return 0;
}

// signals DIR FILES: a timer's handler opens, reads and closes covered files at any point of the
// program
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
    if (got[i] != cube::preload::byte_of(n, static_cast<std::size_t>(i))) _exit(3);
  }
  close(fd);
  errno = saved;
}
int do_signals(const Arguments& a) {
  g_signal_dir = a[0];
  alarm_every(300, on_signal);
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
  alarm_every(0, on_signal);
  std::printf("signals %d\n", g_signals.load());
  return g_signals.load() > 20 ? 0 : 1;
}

std::vector<std::string> g_paths;
std::atomic<int> g_files_read{0};

// Has no destructors to run: with one, a handler that ends the thread here would end the program.
void* read_until_ended(void*) {
  static thread_local char bytes[1 << 18];
  for (std::size_t i = 0;; i = (i + 1) % g_paths.size()) {
    const int fd = open(g_paths[i].c_str(), O_RDONLY);
    CHECK(fd >= 0);
    std::size_t size = 0;
    for (ssize_t n = 0; (n = read(fd, bytes + size, sizeof bytes - size)) != 0;) {
      CHECK(n > 0);
      size += static_cast<std::size_t>(n);
    }
    const int number = static_cast<int>(i);
    CHECK(close(fd) == 0 && size == cube::preload::size_of(number));
    for (std::size_t k = 0; k < size; ++k) CHECK(bytes[k] == cube::preload::byte_of(number, k));
    g_files_read.fetch_add(1, std::memory_order_relaxed);
  }
}

// ended HOW DIR FILES TIMES: a handler ends threads that read files. HOW is exit or cancel
int do_ended(const Arguments& a) {
  const bool is_exit = a[0] == "exit";
  for (int i = 0; i < std::stoi(a[2]); ++i) g_paths.push_back(file_in(a[1], i));
  signal(
      SIGUSR1, is_exit ? [](int) { pthread_exit(nullptr); } : [](int) { pthread_testcancel(); });
  for (int i = 0; i < std::stoi(a[3]); ++i) {
    const int before = g_files_read.load();
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, read_until_ended, nullptr) == 0);
    while (g_files_read.load() == before) sched_yield();
    for (volatile int turn = 0; turn < i * 37 % 5000;) turn = turn + 1;
    if (!is_exit) pthread_cancel(thread);
    CHECK(pthread_kill(thread, SIGUSR1) == 0 && pthread_join(thread, nullptr) == 0);
  }
  for (const std::string& path : g_paths) check_file(path);
  return 0;
}

}  // namespace

Commands hostile_commands() {
  return {{"signals", do_signals},
          {"cancel", do_cancel},
          {"ended", do_ended},
          {"throw", do_throw},
          {"lowest", do_lowest}};
}
