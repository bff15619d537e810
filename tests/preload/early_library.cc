// A library that reads files before main, before the shim's own constructor has run, and after
// main.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/support/preload_content.h"

namespace {

void say(const char* text) { (void)!write(2, text, __builtin_strlen(text)); }

void look(const char* when) {
  const char* const path = getenv("EARLY_FILE");
  if (path == nullptr) return;
  const int number = cube::preload::number_of(path);
  char got[300];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t n = read(fd, got, 100);
  bool right = fd >= 0 && n == 100;
  for (ssize_t i = 0; i < n; ++i)
    right = right && got[i] == cube::preload::byte_of(number, static_cast<std::size_t>(i));
  struct stat st {};
  right = right && fstat(fd, &st) == 0 &&
          static_cast<std::size_t>(st.st_size) == cube::preload::size_of(number);
  right = right && close(fd) == 0;
  FILE* const stream = fopen(path, "r");
  right = right && stream != nullptr && fread(got, 1, 100, stream) == 100 &&
          got[99] == cube::preload::byte_of(number, 99);
  if (stream != nullptr) right = right && fclose(stream) == 0;
  right = right && stat(path, &st) == 0 &&
          static_cast<std::size_t>(st.st_size) == cube::preload::size_of(number);
  right = right && access(path, R_OK) == 0;
  say(when);
  say(right ? ": right\n" : ": WRONG\n");
}

__attribute__((constructor)) void load() { look("constructor"); }
__attribute__((destructor)) void unload() { look("destructor"); }

}  // namespace
