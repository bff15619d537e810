/* Threads of processes that read small files at the same time: PROCESSES THREADS FILES READS HOW
 * DIRECTORY.
 *
 * Each thread reads FILES files of its own in a shuffled order, and starts again until it has
 * made READS reads. FILES is the same for every number of threads: if the threads shared a fixed
 * set, each would read fewer files the more threads there are, and find them in a nearer cache of
 * the processor. HOW is `files` (open, fstat, read, close) or `copy` (a memcpy of the same bytes
 * out of memory that all share). Prints the nanoseconds that a file took, all threads together,
 * from the first that begins to the last that ends; and the nanoseconds of processor time that a
 * file took. C and libc alone, so that it runs wherever the library does. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { k_most_workers = 1024, k_line = 64 };

struct worker {
  _Alignas(2 * k_line) uint64_t begin_ns;
  uint64_t end_ns, cpu_ns;
};

struct shared {
  _Atomic int ready, failed;
  struct worker workers[k_most_workers];
};

static struct shared* shared;
static char** names;
static size_t count, largest, files; /* files: of one thread */
static char* arena; /* of `copy`: each file in a room of `largest` bytes */
static size_t* sizes;
static int processes, threads;
static long reads;

static void fail(const char* what) {
  fprintf(stderr, "reader: %s: %s\n", what, strerror(errno));
  if (shared != NULL) atomic_store(&shared->failed, 1);
  exit(1);
}

static uint64_t now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static size_t read_file(const char* name, char* to) {
  struct stat st;
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &st) != 0) fail(name);
  size_t done = 0;
  while (done < (size_t)st.st_size) {
    const ssize_t n = read(fd, to + done, (size_t)st.st_size - done);
    if (n <= 0) fail(name);
    done += (size_t)n;
  }
  close(fd);
  return done;
}

static void copy_file(size_t index, char* to) {
  memcpy(to, arena + index * largest, sizes[index]);
  __asm__ volatile("" : : "r"(to) : "memory");
}

static void* work(void* argument) {
  const size_t number = (size_t)argument, workers = (size_t)(processes * threads);
  size_t* const order = malloc(files * sizeof *order);
  char* const buffer = aligned_alloc(4096, (largest + 4095) / 4096 * 4096);
  if (order == NULL || buffer == NULL) fail("malloc");
  for (size_t i = 0; i < files; ++i) order[i] = i * workers + number;
  /* This pass takes what happens once: page faults, the attaching of the library, the fetches. It
   * does not shuffle, because records lie in the order of their fetches, and the timed pass must
   * read them in another order. */
  for (size_t i = 0; i < files; ++i) {
    if (arena != NULL) {
      copy_file(order[i], buffer);
    } else {
      read_file(names[order[i]], buffer);
    }
  }
  uint64_t seed = number * 0x9e3779b97f4a7c15U + 1;
  for (size_t i = files; i-- > 1;) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    const size_t other = (size_t)(seed >> 33) % (i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  atomic_fetch_add(&shared->ready, 1);
  while (atomic_load(&shared->ready) < processes * threads) {
    if (atomic_load(&shared->failed)) exit(1);
    /* Threads may be more than processors. */
    usleep(50);
  }
  const uint64_t cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
  shared->workers[number].begin_ns = now_ns(CLOCK_MONOTONIC);
  if (arena != NULL) {
    for (long i = 0; i < reads; ++i) copy_file(order[(size_t)i % files], buffer);
  } else {
    for (long i = 0; i < reads; ++i) read_file(names[order[(size_t)i % files]], buffer);
  }
  shared->workers[number].end_ns = now_ns(CLOCK_MONOTONIC);
  shared->workers[number].cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
  return NULL;
}

static void run_threads(int process) {
  pthread_t ids[k_most_workers];
  for (int i = 0; i < threads; ++i) {
    const int error = pthread_create(&ids[i], NULL, work, (void*)(size_t)(process * threads + i));
    if (error != 0) {
      errno = error;
      fail("pthread_create");
    }
  }
  for (int i = 0; i < threads; ++i) pthread_join(ids[i], NULL);
}

static void list_files(const char* directory) {
  DIR* const dir = opendir(directory);
  if (dir == NULL) fail(directory);
  size_t room = 0;
  for (struct dirent* entry; (entry = readdir(dir)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    if (count == room) {
      room = room == 0 ? 1024 : 2 * room;
      names = realloc(names, room * sizeof *names);
      if (names == NULL) fail("realloc");
    }
    if (asprintf(&names[count++], "%s/%s", directory, entry->d_name) < 0) fail("asprintf");
  }
  closedir(dir);
}

static void fill_arena(void) {
  arena = mmap(NULL, count * largest, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (arena == MAP_FAILED) fail("mmap");
  for (size_t i = 0; i < count; ++i) sizes[i] = read_file(names[i], arena + i * largest);
}

int main(int argc, char** argv) {
  if (argc != 7) {
    fprintf(stderr, "usage: %s PROCESSES THREADS FILES READS files|copy DIRECTORY\n", argv[0]);
    return 2;
  }
  processes = atoi(argv[1]);
  threads = atoi(argv[2]);
  files = strtoul(argv[3], NULL, 10);
  reads = atol(argv[4]);
  if (processes < 1 || threads < 1 || processes * threads > k_most_workers || files < 1) return 2;
  list_files(argv[6]);
  if (count / (size_t)(processes * threads) < files) {
    fprintf(stderr, "reader: %s has fewer files than all threads together read\n", argv[6]);
    return 2;
  }
  sizes = calloc(count, sizeof *sizes);
  for (size_t i = 0; i < count; ++i) {
    struct stat st;
    if (sizes == NULL || stat(names[i], &st) != 0) fail(names[i]);
    if ((size_t)st.st_size > largest) largest = (size_t)st.st_size;
  }
  largest = (largest + 63) / 64 * 64;
  if (strcmp(argv[5], "copy") == 0) fill_arena();
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail("mmap");
  for (int i = 1; i < processes; ++i) {
    const pid_t child = fork();
    if (child < 0) fail("fork");
    if (child == 0) {
      run_threads(i);
      exit(0);
    }
  }
  run_threads(0);
  for (int i = 1; i < processes; ++i) {
    int status = 0;
    if (wait(&status) < 0 || status != 0) {
      fprintf(stderr, "reader: a process has failed\n");
      return 1;
    }
  }
  uint64_t begin = UINT64_MAX, end = 0, cpu = 0;
  for (int i = 0; i < processes * threads; ++i) {
    if (shared->workers[i].begin_ns < begin) begin = shared->workers[i].begin_ns;
    if (shared->workers[i].end_ns > end) end = shared->workers[i].end_ns;
    cpu += shared->workers[i].cpu_ns;
  }
  const double all = (double)reads * processes * threads;
  printf("%.2f %.2f\n", (double)(end - begin) / all, (double)cpu / all);
  return 0;
}
