// A program that is interrupted:  program WAY ARGUMENT...
//   handlers DIRECTORY COUNT [packed]  everything that may be called in a handler, on files f0, f1
//                                      ..., while malloc ends the process
//   jump PATH       SIGUSR1 leaves its open by siglongjmp; then again, at each line of stdin
//   jumps PATH      does so with an open at each line of stdin; then prints by how many MiB and fds
//                   the process has grown
//   first PATH      each of many children leaves its first open by siglongjmp, a microsecond later
//                   than the one before; prints how many could load no library afterwards
//   unload LIBRARY PATH   threads load the library, open the file by its open, unload it, and end
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/preload_content.h"

namespace {

thread_local volatile bool t_in_handler = false;

void end(const char* why) {
  write(STDERR_FILENO, why, std::strlen(why));
  write(STDERR_FILENO, "\n", 1);
  // Aborts, so that a debugger shows the place.
  if (getenv("INTERRUPTED_ABORT") != nullptr) abort();
  _exit(3);
}
void must_not_be_in_handler() {
  if (t_in_handler) end("malloc in a signal handler");
}

}  // namespace

// The calls that a handler can interrupt.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
void* malloc(std::size_t n) {
  must_not_be_in_handler();
  return __libc_malloc(n);
}
void* calloc(std::size_t n, std::size_t size) {
  must_not_be_in_handler();
  return __libc_calloc(n, size);
}
void* realloc(void* of, std::size_t n) {
  must_not_be_in_handler();
  return __libc_realloc(of, n);
}
void* memalign(std::size_t alignment, std::size_t n) {
  must_not_be_in_handler();
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(std::size_t alignment, std::size_t n) { return memalign(alignment, n); }
int posix_memalign(void** to, std::size_t alignment, std::size_t n) {
  *to = memalign(alignment, n);
  return *to != nullptr ? 0 : ENOMEM;
}
void free(void* of) {
  must_not_be_in_handler();
  __libc_free(of);
}
}

namespace {

using cube::preload::byte_of;
using cube::preload::size_of;

void (*g_work)() = nullptr;
char g_path[4096];
const char* g_directory = nullptr;
int g_number = 0;
bool g_packed = false;

void check(bool right, const char* what) {
  if (right) return;
  char text[300];
  std::snprintf(text, sizeof text, "%s of f%d: %s", what, g_number, strerrordesc_np(errno));
  end(text);
}

void in_handler(void (*work)()) {
  g_work = work;
  raise(SIGUSR1);
}
void handle(int) {
  t_in_handler = true;
  const int saved = errno;
  g_work();
  errno = saved;
  t_in_handler = false;
}

const char* path_of(int number) {
  g_number = number;
  std::snprintf(g_path, sizeof g_path, "%s/f%d", g_directory, number);
  return g_path;
}

int open_current() {
  const int fd = open(g_path, O_RDONLY);
  check(fd >= 0, "open");
  return fd;
}
void read_all(int fd) {
  static char buffer[8192];
  std::size_t done = 0;
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) != 0;) {
    check(n > 0, "read");
    for (ssize_t i = 0; i < n; ++i) check(buffer[i] == byte_of(g_number, done + i), "bytes");
    done += n;
  }
  check(done == size_of(g_number), "size");
}
void read_whole() {
  const int fd = open_current();
  struct stat st {};
  check(fstat(fd, &st) == 0 && static_cast<std::size_t>(st.st_size) == size_of(g_number), "fstat");
  read_all(fd);
  check(lseek(fd, 0, SEEK_SET) == 0 && lseek(fd, 0, SEEK_CUR) == 0, "lseek");
  char first = 0;
  check(size_of(g_number) == 0 || (pread(fd, &first, 1, 0) == 1 && first == byte_of(g_number, 0)),
        "pread");
  check(fcntl(fd, F_GETFD) >= 0, "fcntl");
  const int copy = dup(fd);
  check(copy >= 0 && close(copy) == 0, "dup");
  check(close(fd) == 0, "close");
}
void look() {
  struct stat st {};
  check(stat(g_path, &st) == 0 && lstat(g_path, &st) == 0 && access(g_path, R_OK) == 0, "stat");
  check(static_cast<std::size_t>(st.st_size) == size_of(g_number), "size by stat");
}
void make_real() {
  int fd = open_current();
  fsync(fd);
  read_all(fd);
  check(close(fd) == 0, "close");
  fd = open_current();
  check(flock(fd, LOCK_SH) == 0, "flock");
  check(dup2(fd, 60) == 60 && close(fd) == 0, "dup2");
  read_all(60);
  check(close(60) == 0, "close");
}
void map_it() {
  const int fd = open_current();
  const std::size_t n = size_of(g_number);
  if (n != 0) {
    auto* const at = static_cast<char*>(mmap(nullptr, n, PROT_READ, MAP_PRIVATE, fd, 0));
    check(at != MAP_FAILED && at[n - 1] == byte_of(g_number, n - 1) && munmap(at, n) == 0, "mmap");
  }
  check(close(fd) == 0, "close");
}
void look_for_none() {
  struct stat st {};
  std::snprintf(g_path, sizeof g_path, "%s/none", g_directory);
  check(
      open(g_path, O_RDONLY) == -1 && errno == ENOENT && stat(g_path, &st) == -1 && errno == ENOENT,
      "none");
}
void open_directory() {
  char entries[1024];
  const int fd = open(g_directory, O_RDONLY | O_DIRECTORY);
  check(fd >= 0 && getdents64(fd, entries, sizeof entries) > 0, "directory");
  const int file = openat(fd, "f1", O_RDONLY);
  check(file >= 0, "openat");
  g_number = 1;
  read_all(file);
  check(close(file) == 0 && close(fd) == 0, "close");
}
void change() {
  std::snprintf(g_path, sizeof g_path, "%s/new", g_directory);
  char other[4096];
  std::snprintf(other, sizeof other, "%s/newer", g_directory);
  int fd = open(g_path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  check(fd >= 0 && write(fd, "hello", 5) == 5 && close(fd) == 0, "write");
  check(rename(g_path, other) == 0, "rename");
  char text[8] = {};
  fd = open(other, O_RDONLY);
  check(fd >= 0 && read(fd, text, 8) == 5 && std::memcmp(text, "hello", 5) == 0 && close(fd) == 0,
        "read of what was written");
  check(chmod(other, 0600) == 0 && unlink(other) == 0, "unlink");
}

int do_handlers(int argc, char** argv) {
  if (argc < 2) return 2;
  g_directory = argv[0];
  const int count = atoi(argv[1]);
  g_packed = argc > 2;
  signal(SIGUSR1, handle);
  // Makes the first open below the prefix, and all others, in the handler, until there is no room
  // left.
  for (int n = 0; n < count; ++n) {
    path_of(n);
    in_handler(read_whole);
    in_handler(look);
  }
  for (int n = 0; n < 20; ++n) {
    path_of(n % count);
    in_handler(read_whole);
    in_handler(make_real);
    in_handler(map_it);
  }
  in_handler(look_for_none);
  in_handler(open_directory);
  if (!g_packed) in_handler(change);
  return 0;
}

sigjmp_buf g_back;

// Returns the lowest free fd, as the kernel sees it.
int lowest_free() {
  const int fd = dup(STDIN_FILENO);
  close(fd);
  return fd;
}
// Prints whether the file could be read, and whether its fd was the lowest.
void open_and_tell(const char* path, int lowest) {
  char bytes[16];
  const int fd = open(path, O_RDONLY);
  const ssize_t n = read(fd, bytes, sizeof bytes);
  std::printf("%s %s\n", n == 16 ? "read" : strerrorname_np(errno),
              fd == lowest ? "lowest" : "not the lowest");
  close(fd);
}
bool wait_for_line() { return std::getchar() == '\n'; }

int do_jump(int, char** argv) {
  signal(SIGUSR1, [](int) { siglongjmp(g_back, 1); });
  static volatile int lowest;
  lowest = lowest_free();
  if (sigsetjmp(g_back, 1) == 0) {
    const int fd = open(argv[0], O_RDONLY);
    std::printf("not left: %d\n", fd);
    return 1;
  }
  std::puts("left");
  while (wait_for_line()) open_and_tell(argv[0], lowest);
  return 0;
}

// Returns the size of the process in MiB.
int size_of_process() {
  char text[64] = {};
  const int fd = open("/proc/self/statm", O_RDONLY);
  read(fd, text, sizeof text - 1);
  close(fd);
  return static_cast<int>(atol(text) * sysconf(_SC_PAGESIZE) >> 20);
}

int do_jumps(int, char** argv) {
  signal(SIGUSR1, [](int) { siglongjmp(g_back, 1); });
  static volatile int lowest, size = -1;
  std::puts("ready");
  while (wait_for_line()) {
    if (sigsetjmp(g_back, 1) == 0) {
      const int fd = open(argv[0], O_RDONLY);
      std::printf("not left: %d\n", fd);
      close(fd);
      continue;
    }
    // The first jump is not counted, because the next jump may reuse memory that it left.
    if (size < 0) {
      size = size_of_process();
      lowest = lowest_free();
    }
    std::puts("left");
  }
  std::printf("%d %d\n", size_of_process() - size, lowest_free() - lowest);
  return 0;
}

// Opens the file. If the open takes longer than this time, leaves it by a jump.
void open_for(const char* path, long microseconds) {
  const itimerval once{{0, 0}, {0, microseconds}};
  signal(SIGALRM, [](int) { siglongjmp(g_back, 1); });
  if (sigsetjmp(g_back, 1) != 0) return;
  setitimer(ITIMER_REAL, &once, nullptr);
  open(path, O_RDONLY);
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
}

// Ends the process if the loader's lock stays held.
int load_on_another_thread() {
  signal(SIGALRM, SIG_DFL);
  alarm(10);
  pthread_t thread;
  const auto load = [](void*) -> void* { return dlopen("libm.so.6", RTLD_NOW); };
  void* library = nullptr;
  if (pthread_create(&thread, nullptr, load, nullptr) != 0 || pthread_join(thread, &library) != 0)
    return 1;
  return library != nullptr ? 0 : 1;
}

int do_first(int, char** argv) {
  constexpr int k_children = 400, k_at_once = 50;
  int unable = 0;
  for (int i = 1; i <= k_children; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      open_for(argv[0], i);
      _exit(load_on_another_thread());
    }
    check(child > 0, "fork");
    if (i % k_at_once != 0) continue;
    for (int status = 0; wait(&status) > 0;) unable += status != 0 ? 1 : 0;
  }
  std::printf("%d\n", unable);
  return 0;
}

int do_unload(int argc, char** argv) {
  if (argc < 2) return 2;
  const auto body = [](void* of) -> void* {
    char** const arguments = static_cast<char**>(of);
    for (int i = 0; i < 3; ++i) {
      void* const library =
          dlopen(arguments[0], RTLD_NOW | (i % 2 != 0 ? RTLD_GLOBAL : RTLD_LOCAL));
      if (library == nullptr) end(dlerror());
      const auto open_it = reinterpret_cast<int (*)(const char*, int, ...)>(dlsym(library, "open"));
      const auto close_it = reinterpret_cast<int (*)(int)>(dlsym(library, "close"));
      const int fd = open_it(arguments[1], O_RDONLY);
      if (fd < 0) end("open");
      // The last fd stays open.
      if (i < 2) close_it(fd);
      dlclose(library);
    }
    return nullptr;
  };
  for (int i = 0; i < 3; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, body, argv) != 0 || pthread_join(thread, nullptr) != 0)
      return 1;
  }
  std::puts("well");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  setvbuf(stdin, nullptr, _IONBF, 0);
  const char* const way = argc > 2 ? argv[1] : "";
  if (std::strcmp(way, "handlers") == 0) return do_handlers(argc - 2, argv + 2);
  if (std::strcmp(way, "jump") == 0) return do_jump(argc - 2, argv + 2);
  if (std::strcmp(way, "jumps") == 0) return do_jumps(argc - 2, argv + 2);
  if (std::strcmp(way, "first") == 0) return do_first(argc - 2, argv + 2);
  if (std::strcmp(way, "unload") == 0) return do_unload(argc - 2, argv + 2);
  return 2;
}
