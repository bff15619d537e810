/* Two threads open, stat, read and close cached files of 4 KB. Arguments: FILE FILE [--show].
 * Prints how many cache lines both threads write on most of their hits. Stacks and the program's
 * own data do not count. With --show, prints each line that a thread writes, and on how many hits
 * each thread writes it. While a thread makes its hits, all other writable memory is
 * write-protected. Each store faults, and the fault shows its address. The store is then executed
 * with the page writable, and a trap after this one instruction protects the page again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum {
  k_hits = 48,
  k_most_lines = 512,
  k_most_areas = 256,
  k_threads = 2,
  k_page = 4096,
  k_line = 64
};
/* A line that is written on fewer hits belongs to occasional work, such as a sampled time or a
 * check of other processes' numbers. */
enum { k_most_hits_of_rare = k_hits / 8 };
enum { k_trap_flag = 0x100 };

struct line {
  uintptr_t at;
  int hits[k_threads], last_hit[k_threads];
};
struct area {
  uintptr_t begin, end;
  char name[64];
};

static struct line lines[k_most_lines];
static struct area areas[k_most_areas];
static int line_count, area_count;
static int writer, hit; /* of the thread that is watched */
static uintptr_t open_pages[4];
static int open_count;
static uintptr_t stacks[k_threads + 1][2]; /* and thread-local data; the last is of main */
static char buffer[2 * k_page];
static const char* files[k_threads];
static pthread_barrier_t barrier;

static void die(const char* what) {
  perror(what);
  _exit(1);
}

/* Bypasses the library, which tracks the mappings of a program. */
static void protect(uintptr_t begin, uintptr_t end, int protection) {
  long result;
  register long size __asm__("rsi") = (long)(end - begin);
  register long how __asm__("rdx") = protection;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(SYS_mprotect), "D"(begin), "r"(size), "r"(how)
                   : "rcx", "r11", "memory");
  if (result != 0) _exit(3);
}

static struct line* line_at(uintptr_t at) {
  at -= at % k_line;
  for (int i = 0; i < line_count; ++i) {
    if (lines[i].at == at) return &lines[i];
  }
  if (line_count == k_most_lines) _exit(4);
  lines[line_count].at = at;
  return &lines[line_count++];
}

static const struct area* area_of(uintptr_t at) {
  for (int i = 0; i < area_count; ++i) {
    if (at >= areas[i].begin && at < areas[i].end) return &areas[i];
  }
  return NULL;
}

static void on_store(int signal_number, siginfo_t* info, void* context) {
  (void)signal_number;
  const uintptr_t at = (uintptr_t)info->si_addr;
  if (area_of(at) == NULL || open_count == 4) _exit(5);
  struct line* const line = line_at(at);
  if (line->last_hit[writer] != hit) {
    line->last_hit[writer] = hit;
    ++line->hits[writer];
  }
  const uintptr_t page = at - at % k_page;
  open_pages[open_count++] = page;
  protect(page, page + k_page, PROT_READ | PROT_WRITE);
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_EFL] |= k_trap_flag;
}

static void after_store(int signal_number, siginfo_t* info, void* context) {
  (void)signal_number;
  (void)info;
  while (open_count > 0) {
    --open_count;
    protect(open_pages[open_count], open_pages[open_count] + k_page, PROT_READ);
  }
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_EFL] &= ~k_trap_flag;
}

static int is_own(uintptr_t begin, uintptr_t end) {
  extern char __data_start, _end; /* of the program, by the linker */
  if (begin < (uintptr_t)&_end && end > (uintptr_t)&__data_start) return 1;
  for (int i = 0; i <= k_threads; ++i) {
    for (int k = 0; k < 2; ++k) {
      if (stacks[i][k] >= begin && stacks[i][k] < end) return 1;
    }
  }
  return 0;
}

static void note_stack(int i) {
  int local = 0;
  stacks[i][0] = (uintptr_t)&local;
  stacks[i][1] = (uintptr_t)&errno;
}

static void find_areas(void) {
  static char text[1 << 18];
  size_t used = 0;
  const int fd = open("/proc/self/maps", O_RDONLY);
  for (ssize_t n; (n = read(fd, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
  close(fd);
  char* save = NULL;
  for (char* row = strtok_r(text, "\n", &save); row != NULL; row = strtok_r(NULL, "\n", &save)) {
    unsigned long begin, end;
    char rights[8], name[256] = "";
    if (sscanf(row, "%lx-%lx %7s %*s %*s %*s %255[^\n]", &begin, &end, rights, name) < 3 ||
        rights[1] != 'w')
      continue;
    /* Writes to the loader's and libc's own data also happen without the library. */
    if (is_own(begin, end) || name[0] == '[' || strstr(name, "ld-linux") != NULL ||
        strstr(name, "libc.so") != NULL)
      continue;
    if (area_count == k_most_areas) _exit(6);
    struct area* const area = &areas[area_count++];
    area->begin = begin;
    area->end = end;
    const char* const slash = strrchr(name, '/');
    snprintf(area->name, sizeof area->name, "%s", slash != NULL ? slash + 1 : "anonymous");
  }
}

static void protect_all(int protection) {
  for (int i = 0; i < area_count; ++i) protect(areas[i].begin, areas[i].end, protection);
}

static void hit_file(const char* name) {
  struct stat st;
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st) != 0 || read(fd, buffer, sizeof buffer) != st.st_size ||
      close(fd) != 0)
    _exit(7);
}

static void* work(void* argument) {
  const int own = (int)(intptr_t)argument;
  note_stack(own);
  for (int i = 0; i < k_hits; ++i) hit_file(files[own]);
  /* The other thread has a file open meanwhile, so that its fd is not the lowest free fd. */
  int fd = open(files[own], O_RDONLY | O_CLOEXEC);
  for (int turn = 0; turn < k_threads; ++turn) {
    pthread_barrier_wait(&barrier);
    if (turn != own) continue;
    close(fd);
    if (own == 0) find_areas();
    writer = own;
    protect_all(PROT_READ);
    for (hit = 1; hit <= k_hits; ++hit) hit_file(files[own]);
    protect_all(PROT_READ | PROT_WRITE);
    fd = open(files[own], O_RDONLY | O_CLOEXEC);
  }
  pthread_barrier_wait(&barrier);
  return NULL;
}

int main(int count, char** words) {
  if (count < 3) return 2;
  struct sigaction action = {.sa_sigaction = on_store, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(SIGSEGV, &action, NULL) != 0) die("sigaction");
  action.sa_sigaction = after_store;
  if (sigaction(SIGTRAP, &action, NULL) != 0) die("sigaction");
  pthread_barrier_init(&barrier, NULL, k_threads);
  note_stack(k_threads);
  pthread_t threads[k_threads];
  for (int i = 0; i < k_threads; ++i) {
    files[i] = words[1 + i];
    if (pthread_create(&threads[i], NULL, work, (void*)(intptr_t)i) != 0) die("pthread_create");
  }
  for (int i = 0; i < k_threads; ++i) pthread_join(threads[i], NULL);
  int shared = 0, written = 0;
  for (int i = 0; i < line_count; ++i) {
    const struct line* const line = &lines[i];
    const struct area* const area = area_of(line->at);
    shared += line->hits[0] > k_most_hits_of_rare && line->hits[1] > k_most_hits_of_rare;
    written += line->hits[0] > k_most_hits_of_rare;
    if (count > 3)
      printf("%s+%#lx %d %d\n", area->name, (unsigned long)(line->at - area->begin), line->hits[0],
             line->hits[1]);
  }
  printf("shared %d\nwritten %d\n", shared, written);
  return 0;
}
