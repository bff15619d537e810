// For test_past_us.py: libraries whose calls can bypass our library in LD_PRELOAD, and a library
// behind ours that answers fstat.
//   -DDEEP     for dlopen(RTLD_DEEPBIND): each deep_NAME calls libc's functions. deep_size opens
//              through a table of functions; deep_table() returns the table's address
//   -DLOADER   load(name): dlopen by a library that has a search path of its own
//   -DFRONT    read() in front, which takes libc's own by dlvsym instead of the next one
//   -DLOOKUP   read() and fstat() in front, which take libc's own by dlsym
//   -DFORWARD  read() in front, which takes the next one
//   -DRING     ring_read(fd): by a ring of a shared liburing, whose calls are the kernel's without
//              libc
//   -DBEHIND   fstat() behind, which shows another owner; gets_libcs() tells whether it has found
//              libc's own functions, in its constructor and now
//   -DNEXT     next_is_of_libc(name): whether dlsym(RTLD_NEXT) finds libc's own function
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define FIRST_VERSION "GLIBC_2.2.5"
#else
#define FIRST_VERSION "GLIBC_2.17"
#endif

#if defined(DEEP)
long deep_read(int fd);
long deep_read(int fd) {
  char byte = 0;
  return read(fd, &byte, 1);
}
int deep_write(const char* path, const char* text, size_t n);
int deep_write(const char* path, const char* text, size_t n) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const ssize_t written = write(fd, text, n);
  return close(fd) == 0 && written == (ssize_t)n;
}
int deep_print(const char* path, const char* text);
int deep_print(const char* path, const char* text) {
  FILE* const stream = fopen(path, "w");
  return stream != NULL && fputs(text, stream) >= 0 && fclose(stream) == 0;
}
int deep_truncate(const char* path, long n);
int deep_truncate(const char* path, long n) { return truncate(path, n) == 0; }
int deep_rename(const char* from, const char* to);
int deep_rename(const char* from, const char* to) { return rename(from, to) == 0; }
int deep_unlink(const char* path);
int deep_unlink(const char* path) { return unlink(path) == 0; }
static const struct {
  const char* name;
  int (*open)(const char*, int, ...);
} k_table[] = {{"open", open}, {"open64", open64}};
static volatile int which = 0;
const void* deep_table(void);
const void* deep_table(void) { return k_table; }
long deep_size(const char* path);
long deep_size(const char* path) {
  char bytes[4096];
  long size = 0;
  const int fd = k_table[which].open(path, O_RDONLY);
  for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) size += n;
  return close(fd) == 0 ? size : -1;
}
#elif defined(LOADER)
int load(const char* name);
int load(const char* name) { return dlopen(name, RTLD_NOW) != NULL; }
#elif defined(FRONT) || defined(FORWARD)
typedef ssize_t (*read_function)(int, void*, size_t);
ssize_t read(int fd, void* to, size_t n) {
  static read_function next;
#if defined(FRONT)
  if (next == NULL)
    next =
        (read_function)dlvsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "read", FIRST_VERSION);
#else
  if (next == NULL) next = (read_function)dlsym(RTLD_NEXT, "read");
#endif
  return next(fd, to, n);
}
#elif defined(LOOKUP)
static void* of_libc(const char* name) {
  return dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), name);
}
ssize_t read(int fd, void* to, size_t n) {
  return ((ssize_t(*)(int, void*, size_t))of_libc("read"))(fd, to, n);
}
int fstat(int fd, struct stat* st) {
  return ((int (*)(int, struct stat*))of_libc("fstat"))(fd, st);
}
#elif defined(RING)
#include <liburing.h>
long ring_read(int fd);
long ring_read(int fd) {
  static struct io_uring ring;
  static int is_there;
  char bytes[100];
  struct io_uring_cqe* done;
  if (!is_there && io_uring_queue_init(8, &ring, 0) != 0) return -1000;
  is_there = 1;
  if (fd < 0) return 0;
  io_uring_prep_read(io_uring_get_sqe(&ring), fd, bytes, sizeof bytes, 0);
  io_uring_submit(&ring);
  if (io_uring_wait_cqe(&ring, &done) != 0) return -1;
  const long result = done->res;
  io_uring_cqe_seen(&ring, done);
  return result;
}
#elif defined(NEXT) || defined(BEHIND)
static int is_of_libc(const void* function) {
  Dl_info found, libc;
  return dladdr(function, &found) != 0 && dladdr((const void*)&gnu_get_libc_version, &libc) != 0 &&
         found.dli_fbase == libc.dli_fbase;
}
#if defined(NEXT)
int next_is_of_libc(const char* name);
int next_is_of_libc(const char* name) { return is_of_libc(dlsym(RTLD_NEXT, name)); }
#else
static int early = 1;
static int are_libcs(void) {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return is_of_libc(dlsym(RTLD_NEXT, "fstat")) && is_of_libc(dlsym(RTLD_NEXT, "read")) &&
         is_of_libc(dlsym(libc, "fstat")) && is_of_libc(dlsym(libc, "read"));
}
__attribute__((constructor)) static void start(void) { early = are_libcs(); }
int gets_libcs(void);
int gets_libcs(void) { return early && are_libcs(); }
typedef int (*stat_function)(int, struct stat*);
static int shown(stat_function next, int fd, struct stat* st) {
  const int result = next(fd, st);
  if (result == 0) st->st_uid += 1000;
  return result;
}
int fstat(int fd, struct stat* st) {
  return shown((stat_function)dlsym(RTLD_NEXT, "fstat"), fd, st);
}
int fstat64(int fd, struct stat64* st) {
  return shown((stat_function)dlsym(RTLD_NEXT, "fstat64"), fd, (struct stat*)st);
}
#endif
#endif
