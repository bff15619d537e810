// Makes one kind of call on a file repeatedly, for a program that counts instructions. Arguments:
// KIND FILE TIMES.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char bytes[1 << 20];

static int fail(const char* what) {
  perror(what);
  return 1;
}

static int open_and_close(const char* path) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  return fd < 0 || close(fd) != 0;
}

static int fstat_open_file(const char* path) {
  struct stat st;
  static int fd = -1;
  if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC);
  return fstat(fd, &st);
}

static int stat_by_name(const char* path) {
  struct stat st;
  static int fd = -1;
  if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC);
  return stat(path, &st);
}

static int pread_a_line(const char* path) {
  static int fd = -1;
  if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC);
  return pread(fd, bytes, 64, 0) != 64;
}

static int read_and_rewind(const char* path) {
  static int fd = -1;
  if (fd < 0) fd = open(path, O_RDONLY | O_CLOEXEC);
  return read(fd, bytes, 64) != 64 || lseek(fd, 0, SEEK_SET) != 0;
}

int main(int count, char** words) {
  static const struct {
    const char* name;
    int (*call)(const char* path);
  } kinds[] = {{"open_close", open_and_close},
               {"fstat", fstat_open_file},
               {"stat", stat_by_name},
               {"pread", pread_a_line},
               {"read_lseek", read_and_rewind}};
  if (count != 4) return 2;
  for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; ++kind) {
    if (strcmp(words[1], kinds[kind].name) != 0) continue;
    for (long left = atol(words[3]); left > 0; --left) {
      if (kinds[kind].call(words[2]) != 0) return fail(words[1]);
    }
    return 0;
  }
  return 2;
}
