// A plain C program that is linked only with libc: start-up, reads of every kind, fork, a chain of
// execs, dlopen, a signal handler that reads, and threads that come with a library that is loaded
// late. Prints the same natively and under the library.
//   single FILE LEVELS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* g_path;
static volatile unsigned long g_in_handler;

static unsigned long sum_of(const unsigned char* bytes, size_t n) {
  unsigned long sum = 5381;
  for (size_t i = 0; i < n; ++i) sum = sum * 33 + bytes[i];
  return sum;
}

static unsigned long sum_by_read(void) {
  static _Thread_local unsigned char bytes[1 << 16];
  const int fd = open(g_path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof bytes);
  if (fd < 0 || close(fd) != 0) return 0;
  return n < 0 ? 0 : sum_of(bytes, (size_t)n);
}

static void handler(int signal) {
  (void)signal;
  const int saved = errno;
  g_in_handler = sum_by_read();
  errno = saved;
}

static void* thread_body(void* exits) {
  unsigned long* const sum = malloc(sizeof *sum);
  *sum = sum_by_read();
  void (*const leave)(void*) = (void (*)(void*))dlsym(RTLD_DEFAULT, "pthread_exit");
  if (exits != NULL && leave != NULL) leave(sum);
  return sum;
}

static void play_threads(void) {
  typedef unsigned long Thread;
  int (*const create)(Thread*, const void*, void* (*)(void*), void*) =
      (int (*)(Thread*, const void*, void* (*)(void*), void*))dlsym(RTLD_DEFAULT, "pthread_create");
  int (*const join)(Thread, void**) = (int (*)(Thread, void**))dlsym(RTLD_DEFAULT, "pthread_join");
  if (create == NULL || join == NULL) {
    puts("no threads");
    return;
  }
  Thread threads[8];
  for (int i = 0; i < 8; ++i) {
    if (create(&threads[i], NULL, thread_body, i % 2 == 0 ? NULL : &threads) != 0) abort();
  }
  for (int i = 0; i < 8; ++i) {
    void* sum = NULL;
    if (join(threads[i], &sum) != 0) abort();
    printf("thread %lx\n", *(unsigned long*)sum);
    free(sum);
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  setvbuf(stdout, NULL, _IONBF, 0);
  g_path = argv[1];
  const int levels = atoi(argv[2]);
  printf("libc %s\n", gnu_get_libc_version());
  printf("level %d: %lx\n", levels, sum_by_read());

  struct stat st;
  const int fd = open(g_path, O_RDONLY);
  if (fd < 0 || fstat(fd, &st) != 0) return 1;
  char first[8] = "";
  printf("pread %zd %.8s, size %ld\n", pread(fd, first, 8, 1), first, (long)st.st_size);
  void* const map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  printf("map %lx\n", map == MAP_FAILED ? 0 : sum_of(map, (size_t)st.st_size));
  FILE* const stream = fopen(g_path, "r");
  char line[200] = "";
  if (stream == NULL || fgets(line, sizeof line, stream) == NULL || fclose(stream) != 0) return 1;
  printf("line %lx\n", sum_of((const unsigned char*)line, strlen(line)));
  char* const real = realpath(g_path, NULL);
  printf("realpath %s\n", real);
  free(real);

  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  printf("handler %lx\n", g_in_handler);

  // Shares its offset with the child.
  lseek(fd, 3, SEEK_SET);
  const pid_t child = fork();
  if (child == 0) _exit(read(fd, first, 4) == 4 && sum_by_read() != 0 ? 7 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  printf("fork %d, offset %ld\n", WEXITSTATUS(status), (long)lseek(fd, 0, SEEK_CUR));

  if (levels == 0) {
    void* const library = dlopen("libpthread.so.0", RTLD_NOW | RTLD_GLOBAL);
    printf("dlopen %d\n", library != NULL);
    play_threads();
    return sum_by_read() != 0 ? 0 : 1;
  }
  snprintf(line, sizeof line, "%d", levels - 1);
  execl("/proc/self/exe", argv[0], g_path, line, (char*)NULL);
  return 1;
}
