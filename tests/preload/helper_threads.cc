// The commands of preload_helper that use many threads at the same time.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <threads.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "tests/preload/helper.h"
#include "tests/support/meanwhile.h"
#include "tests/support/preload_content.h"

using cube::preload::byte_of;
using cube::preload::size_of;
using cube::tests::Meanwhile;

namespace {

// threads DIR FILES SECONDS*10: many threads open, read, pread, stat, dup, map and close the same
// and different files
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
          const auto* const at =
              static_cast<const char*>(mmap(nullptr, st.st_size, PROT_READ, MAP_SHARED, fd, 0));
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

// close-race DIR FILES ROUNDS: some threads close and reopen fds while other threads read and seek
// them. A reader may see EBADF or another file, but its bytes must always be right and from a
// single file.
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
      for (ssize_t i = 0; i < n && known; ++i)
        known = got[i] == byte_of(f, static_cast<std::size_t>(i));
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

// large-close-race FILE OTHER ROUNDS: one thread opens the two files in turn at the same fd, and
// two threads read it. Each read must return bytes of only one file. The two files have separate
// offsets.
int do_large_close_race(const Arguments& a) {
  constexpr int k_number = 50;
  constexpr std::size_t k_most = 300'000;
  const auto is_of = [](const std::vector<char>& bytes, std::size_t n, std::size_t at, int file) {
    for (std::size_t i = 0; i < n; ++i) {
      if (bytes[i] != byte_of(file, at + i)) return false;
    }
    return true;
  };
  CHECK(dup2(open(a[0].c_str(), O_RDONLY), k_number) == k_number);
  struct stat st {};
  CHECK(fstat(k_number, &st) == 0);
  const Meanwhile readers(2, [&](std::mt19937& random) {
    std::vector<char> bytes(k_most);
    const std::size_t n = 1 + random() % k_most,
                      at = random() % (static_cast<std::size_t>(st.st_size) - n);
    const ssize_t got = pread(k_number, bytes.data(), n, static_cast<off_t>(at));
    CHECK(got > 0);
    const auto whole = static_cast<std::size_t>(got);
    CHECK(is_of(bytes, whole, at, 0) || is_of(bytes, whole, at, 1));
  });
  for (int i = 0; i < std::stoi(a[2]); ++i) {
    const int fd = open(a[static_cast<std::size_t>(i + 1) % 2].c_str(), O_RDONLY);
    CHECK(fd >= 0 && dup2(fd, k_number) == k_number && close(fd) == 0);
    usleep(100);
  }
  return 0;
}

sigjmp_buf g_before_read;
volatile std::sig_atomic_t g_reads = 0;

std::size_t lines_of_maps() {
  const int fd = open("/proc/self/maps", O_RDONLY);
  static char bytes[1 << 16];
  std::size_t lines = 0;
  for (ssize_t n = 0; (n = read(fd, bytes, sizeof bytes)) > 0;)
    lines += static_cast<std::size_t>(std::count(bytes, bytes + n, '\n'));
  close(fd);
  return lines;
}

// large-jumps FILE TIMES: a timer's handler leaves reads of the file by a jump. Neither fds nor
// mappings are lost.
int do_large_jumps(const Arguments& a) {
  constexpr std::size_t k_most = 1 << 20;
  static char bytes[k_most];
  signal(SIGALRM, [](int) {
    if (std::exchange(g_reads, 0) != 0) siglongjmp(g_before_read, 1);
  });
  const int fd = open(a[0].c_str(), O_RDONLY);
  struct stat st {};
  CHECK(fstat(fd, &st) == 0 && pread(fd, bytes, 1, 0) == 1);
  const std::size_t before = lines_of_maps();
  static std::mt19937 random(1);
  static int jumps = 0;
  for (static int i = 0; i < std::stoi(a[1]); ++i) {
    const std::size_t at = random() % (static_cast<std::size_t>(st.st_size) - k_most),
                      n = 1 + random() % k_most;
    itimerval soon{};
    soon.it_value.tv_usec = 1 + static_cast<int>(random() % 200);
    if (sigsetjmp(g_before_read, 1) != 0) {
      ++jumps;
      continue;
    }
    g_reads = 1;
    CHECK(setitimer(ITIMER_REAL, &soon, nullptr) == 0);
    const ssize_t got = pread(fd, bytes, n, static_cast<off_t>(at));
    g_reads = 0;
    CHECK(got == static_cast<ssize_t>(n));
    for (std::size_t k = 0; k < n; ++k) CHECK(bytes[k] == byte_of(0, at + k));
  }
  CHECK(jumps > 10);
  CHECK(lines_of_maps() < before + 50);
  const int next = open("/dev/null", O_RDONLY);
  CHECK(next == fd + 1);
  return 0;
}

// A write-protected page. A copy to it calls the handler.
char* g_closed_page;
void to_closed_page(void (*handler)(int)) {
  g_closed_page =
      static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  signal(SIGSEGV, handler);
}

// large-left FILE TIMES: a jump leaves a read of each open file, and the file is closed
int do_large_left(const Arguments& a) {
  to_closed_page([](int) { siglongjmp(g_before_read, 1); });
  char bytes[4096];
  for (static int i = 0; i < std::stoi(a[1]); ++i) {
    const int fd = open(a[0].c_str(), O_RDONLY);
    CHECK(fd >= 0 && pread(fd, bytes, sizeof bytes, 4096) == sizeof bytes);
    if (sigsetjmp(g_before_read, 1) == 0) pread(fd, g_closed_page, sizeof bytes, 4096);
    CHECK(close(fd) == 0);
  }
  return 0;
}

// large-fork FILE: a handler forks during a read, which both the child and its parent complete
int do_large_fork(const Arguments& a) {
  static int status = 1;
  static bool is_child = false;
  to_closed_page([](int) {
    mprotect(g_closed_page, 4096, PROT_READ | PROT_WRITE);
    const pid_t child = fork();
    is_child = child == 0;
    if (!is_child) waitpid(child, &status, 0);
  });
  char bytes[4096];
  const int fd = open(a[0].c_str(), O_RDONLY);
  CHECK(fd >= 0 && pread(fd, bytes, sizeof bytes, 4096) == sizeof bytes);
  CHECK(pread(fd, g_closed_page, sizeof bytes, 4096) == sizeof bytes);
  CHECK(std::memcmp(bytes, g_closed_page, sizeof bytes) == 0);
  CHECK(pread(fd, bytes, sizeof bytes, 1 << 20) == sizeof bytes);
  for (std::size_t k = 0; k < sizeof bytes; ++k) CHECK(bytes[k] == byte_of(0, (1 << 20) + k));
  if (is_child) _exit(0);
  CHECK(status == 0);
  return 0;
}

// Returns the size of all resident pages in bytes.
std::size_t resident() {
  char text[128] = {};
  const int fd = open("/proc/self/statm", O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
  return std::strtoul(std::strchr(text, ' '), nullptr, 10) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}
constexpr std::size_t k_little = 1 << 20;

// Returns the lowest free fd according to the kernel.
int lowest_number() {
  const int fd = dup(STDERR_FILENO);
  CHECK(fd >= 0 && close(fd) == 0);
  return fd;
}

// hand-over DIR FILES TIMES: one thread opens files and another thread closes them. The number of
// fds and the memory in use must not grow.
int do_hand_over(const Arguments& a) {
  constexpr int k_none = -1, k_end = -2;
  const int lowest = lowest_number(), files = std::stoi(a[1]), times = std::stoi(a[2]);
  std::atomic<int> handed{k_none};
  std::thread closer([&] {
    for (int fd = k_none; fd != k_end;) {
      handed.wait(k_none);
      fd = handed.exchange(k_none);
      handed.notify_one();
      if (fd >= 0) CHECK(close(fd) == 0);
    }
  });
  const auto hand_over = [&](int fd) {
    for (int now = handed.load(); now != k_none; now = handed.load()) handed.wait(now);
    handed.store(fd);
    handed.notify_one();
  };
  std::size_t before = 0;
  for (int i = 0; i < times; ++i) {
    if (i == times / 10) before = resident();
    const int fd = open(file_in(a[0], i % files).c_str(), O_RDONLY);
    CHECK(fd >= lowest && fd < lowest + 4);
    hand_over(fd);
  }
  hand_over(k_end);
  closer.join();
  CHECK(resident() < before + k_little);
  CHECK(lowest_number() == lowest);
  return 0;
}

// short-threads DIR FILES THREADS: runs threads one after the other. Each opens some files, closes
// them and ends. The next thread reuses its fds and its memory.
int do_short_threads(const Arguments& a) {
  constexpr int k_open = 3;
  const int lowest = lowest_number(), files = std::stoi(a[1]), threads = std::stoi(a[2]);
  std::size_t before = 0;
  for (int i = 0; i < threads; ++i) {
    if (i == threads / 10) before = resident();
    std::thread([&] {
      int fds[k_open];
      for (int k = 0; k < k_open; ++k) {
        fds[k] = open(file_in(a[0], (i + k) % files).c_str(), O_RDONLY);
        CHECK(fds[k] == lowest + k);
      }
      for (int k = 0; k < k_open; ++k) check_fd(fds[k], (i + k) % files);
      for (const int fd : fds) CHECK(close(fd) == 0);
    }).join();
  }
  CHECK(resident() < before + k_little);
  const int fd = open(file_in(a[0], 0).c_str(), O_RDONLY);
  CHECK(fd == lowest && close(fd) == 0);
  CHECK(lowest_number() == lowest);
  return 0;
}

// left-fds DIR FILES: threads that had files open at the same time continue to run. The next opens,
// by the library or the kernel, get the lowest fds.
int do_left_fds(const Arguments& a) {
  constexpr int k_threads = 5;
  const int files = std::stoi(a[1]);
  for (int n = 0; n < files; ++n) check_file(file_in(a[0], n));
  const int lowest = lowest_number();
  std::atomic<int> opened{0}, closed{0}, may_end{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < k_threads; ++t) {
    threads.emplace_back([&, t] {
      const int fd = open(file_in(a[0], t % files).c_str(), O_RDONLY);
      CHECK(fd >= lowest && fd < lowest + k_threads);
      ++opened;
      while (opened < k_threads) std::this_thread::yield();
      CHECK(close(fd) == 0);
      // For the program, the fd is free.
      CHECK(close(fd) == -1 && errno == EBADF);
      ++closed;
      while (may_end == 0) std::this_thread::yield();
    });
  }
  while (closed < k_threads) std::this_thread::yield();
  int fds[2 * k_threads];
  for (int i = 0; i < k_threads; ++i)
    CHECK((fds[i] = open(file_in(a[0], i % files).c_str(), O_RDONLY)) == lowest + i);
  for (int i = 0; i < k_threads; ++i)
    CHECK((fds[k_threads + i] = open("/dev/null", O_RDONLY)) == lowest + k_threads + i);
  for (const int fd : fds) CHECK(close(fd) == 0);
  CHECK(lowest_number() == lowest);
  may_end = 1;
  for (auto& thread : threads) thread.join();
  return 0;
}

// fork-threads DIR FILES FORKS: forks while threads read. Each child reads all files and its
// inherited fd.
int do_fork_threads(const Arguments& a) {
  const int files = std::stoi(a[1]);
  const Meanwhile readers(
      4, [&](std::mt19937& random) { check_file(random_file(a[0], files, random)); });
  for (int i = 0; i < std::stoi(a[2]); ++i) {
    const int fd = open(file_in(a[0], 7).c_str(), O_RDONLY);
    char head[100];
    CHECK(read(fd, head, 100) == 100);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(120);
      char more[50];
      CHECK(read(fd, more, 50) == 50 && more[0] == byte_of(7, 100));
      for (int n = 0; n < files; ++n) check_file(file_in(a[0], n));
      _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0)
      std::fprintf(stderr, "helper: child %d of %d ended with %x\n", i, std::stoi(a[2]), status);
    CHECK(status == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 150);
    check_fd(fd, 7, 150);
    CHECK(close(fd) == 0);
  }
  return 0;
}

// vfork-threads DIR FILES PROGRAM: vforked children close every fd while other threads read
int do_vfork_threads(const Arguments& a) {
  const int files = std::stoi(a[1]);
  const Meanwhile readers(
      3, [&](std::mt19937& random) { check_file(random_file(a[0], files, random)); });
  const char* const arguments[] = {a[2].c_str(), "nothing", nullptr};
  for (int i = 0; i < 200; ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      // These calls take long enough for the other threads to open files meanwhile.
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

bool is_zombie(pid_t thread) {
  char text[64] = {};
  const int fd = open(("/proc/self/task/" + std::to_string(thread) + "/stat").c_str(), O_RDONLY);
  CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
  return std::strstr(text, ") Z ") != nullptr;
}

bool has_library_threads() {
  std::error_code none;
  const std::filesystem::directory_iterator threads("/proc/self/task", none);
  return std::distance(begin(threads), end(threads)) > 2;
}

[[noreturn]] void end_first_thread(const std::string& how) {
  if (how == "pthread_exit") pthread_exit(nullptr);
  if (how == "thrd_exit") thrd_exit(0);
  if (how == "cancel") pthread_cancel(pthread_self());
  if (how == "syscall") syscall(SYS_exit, 0);
  for (;;) pause();
}

// first-ends HOW DIR FILES FROM: the first thread ends before the second, after the library has
// started threads in the process. If FROM is "fork", this happens in a child that was forked by the
// second thread of another process.
int do_first_ends(const Arguments& a) {
  const auto run = [&a] {
    // Captures a copy, because the end of the first thread unwinds its frames.
    std::thread second([a] {
      const pid_t first = getpid();
      const int files = std::stoi(a[2]);
      while (!is_zombie(first)) check_file(file_in(a[1], 0));
      for (int n = 0; n < files; ++n) check_file(file_in(a[1], n));
    });
    second.detach();
    for (int n = 0; !has_library_threads(); n = (n + 1) % std::stoi(a[2]))
      check_file(file_in(a[1], n));
    end_first_thread(a[0]);
  };
  if (a[3] == "main") run();
  std::thread([&run] {
    const pid_t child = fork();
    if (child == 0) run();
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }).join();
  return 0;
}

// Maps an inaccessible range, and returns its address.
std::uintptr_t reserve(std::size_t bytes) {
  void* const at =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(at != MAP_FAILED);
  return reinterpret_cast<std::uintptr_t>(at);
}

// holes DIR FILES: the program has just unmapped ranges of many sizes, and can unmap them again at
// any time. The library must map nothing there when it attaches and starts its threads.
int do_holes(const Arguments& a) {
  constexpr std::size_t k_kib = 1024, k_size = std::size_t{64} << 20;
  constexpr std::size_t k_holes[] = {4 * k_kib,   8 * k_kib,   64 * k_kib,   196 * k_kib,
                                     264 * k_kib, 520 * k_kib, 4100 * k_kib, 20000 * k_kib};
  const std::uintptr_t least = reserve(k_size);
  // The kernel prefers the highest gap, so this loop fills all gaps above ours.
  for (const std::size_t size : {4096 * k_kib, 256 * k_kib, 32 * k_kib, 4 * k_kib}) {
    while (reserve(size) > least) {
    }
  }
  std::vector<std::uintptr_t> begins;
  std::uintptr_t at = least + 4 * k_kib;
  for (const std::size_t size : k_holes) {
    CHECK(munmap(reinterpret_cast<void*>(at), size) == 0);
    begins.push_back(at);
    at += size + 4 * k_kib;
  }
  for (int n = 0; !has_library_threads(); n = (n + 1) % std::stoi(a[1]))
    check_file(file_in(a[0], n));
  // Fails on pages that are mapped.
  const auto map_again = [](std::uintptr_t here, std::size_t size) {
    return mmap(reinterpret_cast<void*>(here), size, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  };
  constexpr auto k_passing = std::chrono::seconds(10);  // the longest time for which a short-lived
                                                        // mapping exists
  const auto began = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < begins.size(); ++i) {
    void* again = MAP_FAILED;
    do {
      again = map_again(begins[i], k_holes[i]);
    } while (again == MAP_FAILED && std::chrono::steady_clock::now() - began < k_passing);
    if (again == MAP_FAILED) {
      std::fprintf(stderr, "the hole of %zu bytes at %zx is in use:\n", k_holes[i], begins[i]);
      std::ifstream maps("/proc/self/maps");
      for (std::string line; std::getline(maps, line);) std::fprintf(stderr, "%s\n", line.c_str());
    }
    CHECK(again != MAP_FAILED);
  }
  return 0;
}

}  // namespace

Commands thread_commands() {
  return {{"threads", do_threads},
          {"close-race", do_close_race},
          {"large-close-race", do_large_close_race},
          {"large-jumps", do_large_jumps},
          {"large-left", do_large_left},
          {"large-fork", do_large_fork},
          {"fork-threads", do_fork_threads},
          {"vfork-threads", do_vfork_threads},
          {"first-ends", do_first_ends},
          {"hand-over", do_hand_over},
          {"short-threads", do_short_threads},
          {"left-fds", do_left_fds},
          {"holes", do_holes}};
}
