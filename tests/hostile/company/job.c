// The job of the company tests. `company_job STEP...` runs one step after another and prints what
// it has read, so that runs with and without the library can be compared word by word. Written in
// C, because it is also built with musl, static, static-pie and with every sanitizer. Steps:
//   read:DIR              each file f0, f1 ... of DIR whole: name, size, checksum
//   quiet:DIR             the same without a word while all is as it was seen before
//   half:DIR              the same for the first half of the files only
//   one:PATH              reads that file
//   hold:DIR  held        opens a file and reads its beginning; reads the rest of it
//   threads:DIR:N:STACK   quiet:DIR in N threads with stacks of STACK bytes
//   small:DIR:STACK       looks at names below DIR, each in a process whose one thread with a stack
//                         of STACK bytes does it
//   change:DIR:STACK      changes names below DIR likewise
//   fork:DIR  vfork:DIR   quiet:DIR in a child; the held file's offset is shared with it; vfork's
//             child runs /bin/true
//   signal:DIR:BYTES      a handler on a stack of MINSIGSTKSZ and BYTES reads files, in the midst
//                         of a read
//   send:DIR              sendfile, flock, mmap and a dup of each file: what becomes a kernel file,
//                         and what does not
//   wait                  says so and waits for the end of stdin
//   overflow:DIR          a read beyond a buffer, for address sanitizers to find
//   seccomp:HOW:CALL,...  from here on these system calls fail with HOW (an errno's name, or kill)
//   allow:CALL,...        from here on every other system call kills
//   limit:NAME:BYTES      setrlimit
//   dumpable:0  nnp  personality  user:UID  chroot:DIR  umask:N  close:FD
//   open:PATH:FD          PATH for reading and appending, as fd number FD
//   exec COMMAND...       the rest of the line is a program to run from here
//   argv0 PROGRAM         runs it without even a name of its own
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/company/job.h"
#include "tests/hostile/company/seccomp.h"

enum { k_most_files = 4096 };
static uint32_t g_seen[k_most_files];
static int g_held = -1;

static uint32_t checksum(uint32_t sum, const unsigned char* at, size_t n) {
  for (size_t i = 0; i < n; ++i) sum = (sum ^ at[i]) * 16777619u;
  return sum;
}
static uint32_t checksum_of_fd(int fd, off_t* size) {
  unsigned char part[1024];  // small, because the job must also run on small stacks
  uint32_t sum = 2166136261u;
  for (ssize_t n = 0; (n = read(fd, part, sizeof part)) != 0; *size += n) {
    CHECK(n > 0);
    sum = checksum(sum, part, (size_t)n);
  }
  return sum;
}
static void name_of(char* path, size_t room, const char* dir, int i) {
  // Builds the name by hand, because a signal handler must not call snprintf.
  size_t n = strlen(dir);
  CHECK(n + 10 < room);
  memcpy(path, dir, n);
  memcpy(path + n, "/f", 2);
  char digits[8];
  int k = 0;
  do digits[k++] = (char)('0' + i % 10);
  while ((i /= 10) != 0);
  for (n += 2; k > 0;) path[n++] = digits[--k];
  path[n] = '\0';
}
static int open_file(const char* dir, int i, int flags) {
  char path[512];
  name_of(path, sizeof path, dir, i);
  return open(path, flags);
}

static int read_files(const char* dir, int from, int step, int quiet) {
  int i = from;
  for (; i < k_most_files; i += step) {
    const int fd = open_file(dir, i, O_RDONLY);
    if (fd < 0 && errno == ENOENT) break;
    CHECK(fd >= 0);
    off_t size = 0;
    const uint32_t sum = checksum_of_fd(fd, &size);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == size);
    CHECK(close(fd) == 0);
    if (quiet) {
      // For threads: the first thread that reads a file records what all others must read.
      uint32_t before = 0;
      CHECK(__atomic_compare_exchange_n(&g_seen[i], &before, sum, 0, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            before == sum);
      continue;
    }
    __atomic_store_n(&g_seen[i], sum, __ATOMIC_RELAXED);
    printf("f%d %lld %08x\n", i, (long long)size, sum);
  }
  return i;
}

struct Work {
  const char* dir;
};
static void* read_in_thread(void* work) {
  read_files(((struct Work*)work)->dir, 0, 1, 1);
  return NULL;
}
static void run_threads(char* arguments) {
  struct Work work = {strsep(&arguments, ":")};
  const int n = atoi(strsep(&arguments, ":"));
  const size_t stack = strtoul(arguments, NULL, 10);
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, stack) == 0);
  pthread_t* const threads = calloc((size_t)n, sizeof *threads);
  int started = 0;
  for (; started < n; ++started)
    if (pthread_create(&threads[started], &attributes, read_in_thread, &work) != 0) break;
  for (int i = 0; i < started; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  printf("threads: %d\n", started);
  free(threads);
}

void end_of(pid_t child) {
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) fprintf(stderr, "job: the child died of signal %d\n", WTERMSIG(status));
  CHECK(status == 0);
}
static void hold(const char* dir) {
  unsigned char head[100];
  g_held = open_file(dir, 7, O_RDONLY);
  CHECK(g_held >= 0 && read(g_held, head, sizeof head) == (ssize_t)sizeof head);
}
static void run_fork(const char* dir) {
  hold(dir);
  fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    char more[50];
    CHECK(read(g_held, more, sizeof more) == (ssize_t)sizeof more);
    read_files(dir, 0, 1, 1);
    exit(0);
  }
  end_of(child);
  printf("offset after the child: %lld\n", (long long)lseek(g_held, 0, SEEK_CUR));
  CHECK(close(g_held) == 0);
  g_held = -1;
}
static void run_vfork(const char* dir) {
  hold(dir);
  const pid_t child = vfork();
  if (child == 0) {
    execl("/bin/true", "true", (char*)NULL);
    _exit(1);
  }
  end_of(child);
  read_files(dir, 0, 1, 1);
}

static const char* g_signal_dir;
static volatile sig_atomic_t g_signals;
static void on_signal(int signal) {
  (void)signal;
  const int saved = errno;
  // A handler on the smallest stack has only room to read two files.
  for (int i = 3; i < 5; ++i) {
    const int fd = open_file(g_signal_dir, i, O_RDONLY);
    CHECK(fd >= 0);
    char byte;
    CHECK(read(fd, &byte, 1) == 1 && close(fd) == 0);
  }
  g_signals = g_signals + 1;
  errno = saved;
}
static void run_signal(char* arguments) {
  const char* const dir = strsep(&arguments, ":");
  const size_t room_for_us = strtoul(arguments, NULL, 10);
  g_signal_dir = dir;
#ifdef _SC_MINSIGSTKSZ
  const size_t least = (size_t)sysconf(_SC_MINSIGSTKSZ);  // what this processor's registers need
#else
  const size_t least = MINSIGSTKSZ;
#endif
  const size_t bytes = least + room_for_us;
  char* const room = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const size_t pages = (bytes + 4095) / 4096 * 4096;
  CHECK(room != MAP_FAILED && mprotect(room + 65536 - pages, pages, PROT_READ | PROT_WRITE) == 0);
  const stack_t stack = {.ss_sp = room + 65536 - bytes, .ss_size = bytes};
  CHECK(sigaltstack(&stack, NULL) == 0);
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  hold(dir);
  for (int i = 0; i < 20; ++i) {
    char byte;
    CHECK(raise(SIGUSR1) == 0 && read(g_held, &byte, 1) == 1);
    read_files(dir, 0, 1, 1);
  }
  CHECK(close(g_held) == 0);
  g_held = -1;
  printf("signals: %d\n", (int)g_signals);
}

static void run_send(const char* dir) {
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  for (int i = 1; i < 4; ++i) {
    const int fd = open_file(dir, i, O_RDONLY);
    CHECK(fd >= 0);
    const int copy = dup(fd);
    CHECK(copy >= 0);
    char byte = 0;
    CHECK(read(copy, &byte, 1) == 1);
    const off_t left = lseek(fd, 0, SEEK_END) - 1;
    CHECK(lseek(fd, 1, SEEK_SET) == 1);
    CHECK(flock(fd, LOCK_SH) == 0);
    if (left > 0) {
      CHECK(sendfile(pipes[1], fd, NULL, (size_t)left) == left);
      for (off_t n = 0; n < left; ++n) CHECK(read(pipes[0], &byte, 1) == 1);
    }
    const unsigned char* const at = mmap(NULL, (size_t)left + 1, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(at != MAP_FAILED);
    CHECK(checksum(2166136261u, at, (size_t)left + 1) == g_seen[i]);
    CHECK(munmap((void*)at, (size_t)left + 1) == 0);
    CHECK(close(fd) == 0 && close(copy) == 0);
  }
  CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

static void overflow(const char* dir) {
  char* const small = malloc(16);
  const int fd = open_file(dir, 3, O_RDONLY);
  volatile size_t bytes = 64;
  printf("%zd\n", read(fd, small, bytes));
  free(small);
}

// Prints whether mlockall succeeded, and whether more than the program's own memory is locked.
static void lock_all(int flags) {
  const int result = mlockall(flags), error = errno;
  char text[4096];
  const int fd = open("/proc/self/status", O_RDONLY);
  const ssize_t n = read(fd, text, sizeof text - 1);
  CHECK(n > 0 && close(fd) == 0);
  text[n] = 0;
  const char* const locked = strstr(text, "VmLck:");
  CHECK(locked != NULL);
  printf("mlockall %d: %s, %s\n", flags, result == 0 ? "done" : strerror(error),
         atol(locked + 6) < 16 << 10 ? "little" : "too much");
}

static void set_limit(char* arguments) {
  static const struct {
    const char* name;
    int number;
  } known[] = {{"nofile", RLIMIT_NOFILE},   {"as", RLIMIT_AS},       {"data", RLIMIT_DATA},
               {"memlock", RLIMIT_MEMLOCK}, {"fsize", RLIMIT_FSIZE}, {"nproc", RLIMIT_NPROC},
               {"stack", RLIMIT_STACK},     {"core", RLIMIT_CORE}};
  const char* const name = strsep(&arguments, ":");
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (strcmp(name, known[i].name) != 0) continue;
    const struct rlimit limit = {strtoul(arguments, NULL, 10), strtoul(arguments, NULL, 10)};
    CHECK(setrlimit(known[i].number, &limit) == 0);
    return;
  }
  CHECK(!"a known limit");
}

static void do_step(char* step) {
  char* rest = step;
  const char* const name = strsep(&rest, ":");
  if (strcmp(name, "read") == 0) {
    printf("%d files\n", read_files(rest, 0, 1, 0));
  } else if (strcmp(name, "quiet") == 0) {
    read_files(rest, 0, 1, 1);
  } else if (strcmp(name, "half") == 0) {
    read_files(rest, 0, 2, 0);
  } else if (strcmp(name, "one") == 0) {
    const int fd = open(rest, O_RDONLY);
    off_t size = 0;
    const uint32_t sum = checksum_of_fd(fd, &size);
    printf("one %lld %08x\n", (long long)size, sum);
    CHECK(close(fd) == 0);
  } else if (strcmp(name, "hold") == 0) {
    hold(rest);
  } else if (strcmp(name, "held") == 0) {
    off_t size = 0;
    const uint32_t sum = checksum_of_fd(g_held, &size);
    printf("held %lld %08x %s\n", (long long)size, sum,
           close(g_held) == 0 ? "closed" : strerror(errno));
  } else if (strcmp(name, "threads") == 0) {
    run_threads(rest);
  } else if (strcmp(name, "small") == 0 || strcmp(name, "change") == 0) {
    run_small(rest, *name == 'c');
  } else if (strcmp(name, "fork") == 0) {
    run_fork(rest);
  } else if (strcmp(name, "vfork") == 0) {
    run_vfork(rest);
  } else if (strcmp(name, "signal") == 0) {
    run_signal(rest);
  } else if (strcmp(name, "send") == 0) {
    run_send(rest);
  } else if (strcmp(name, "wait") == 0) {
    printf("waiting\n");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
  } else if (strcmp(name, "overflow") == 0) {
    overflow(rest);
  } else if (strcmp(name, "seccomp") == 0) {
    const char* const how = strsep(&rest, ":");
    CHECK(company_refuse(how, rest) == 0);
  } else if (strcmp(name, "allow") == 0) {
    CHECK(company_allow_only(rest) == 0);
  } else if (strcmp(name, "limit") == 0) {
    set_limit(rest);
  } else if (strcmp(name, "lockall") == 0) {
    lock_all(atoi(rest));
  } else if (strcmp(name, "dumpable") == 0) {
    CHECK(prctl(PR_SET_DUMPABLE, atoi(rest), 0, 0, 0) == 0);
  } else if (strcmp(name, "nnp") == 0) {
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  } else if (strcmp(name, "personality") == 0) {
    CHECK(personality(ADDR_NO_RANDOMIZE) >= 0);
  } else if (strcmp(name, "user") == 0) {
    CHECK(setgid((gid_t)atoi(rest)) == 0 && setuid((uid_t)atoi(rest)) == 0);
  } else if (strcmp(name, "chroot") == 0) {
    CHECK(chroot(rest) == 0 && chdir("/") == 0);
  } else if (strcmp(name, "umask") == 0) {
    umask((mode_t)strtoul(rest, NULL, 8));
  } else if (strcmp(name, "close") == 0) {
    close(atoi(rest));
  } else if (strcmp(name, "open") == 0) {
    const char* const path = strsep(&rest, ":");
    const int fd = open(path, O_RDWR | O_CREAT | O_APPEND, 0644);
    CHECK(fd >= 0 && dup2(fd, atoi(rest)) == atoi(rest));
  } else {
    CHECK(!"a known step");
  }
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "exec") == 0) {
      execv(argv[i + 1], argv + i + 1);
      CHECK(!"exec");
    }
    if (strcmp(argv[i], "argv0") == 0) {
      // Linux replaces a missing argv[0] by an empty string.
      char* const none[] = {NULL};
      execv(argv[i + 1], none);
      CHECK(!"exec");
    }
    do_step(argv[i]);
    fflush(stdout);
  }
  return 0;
}
