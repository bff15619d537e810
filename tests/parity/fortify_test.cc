// Compiled with -D_FORTIFY_SOURCE=2 -O2, so that these calls become the __*_chk and __*_2 symbols.
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/support/parity_case.h"

#if !defined(__OPTIMIZE__) || __USE_FORTIFY_LEVEL != 2
#error "this file tests the fortified calls"
#endif

namespace {
// A size that the compiler cannot see through: otherwise it calls the plain functions.
template <typename T>
T opaque(T value) {
  asm volatile("" : "+r"(value));
  return value;
}
}  // namespace

PARITY(Fortify, EveryCallGivesTheSame) {
  const char* const path = t.file("a", 300);
  char got[64] = {}, name[PATH_MAX] = {};
  const int fd = CALL(open(path, opaque(O_RDONLY)));
  t.expect_served(fd);
  CALL(read(fd, got, opaque(sizeof got)));
  t.bytes("read", got, sizeof got);
  CALL(pread(fd, got, opaque(sizeof got), 100));
  t.bytes("pread", got, sizeof got);
  CALL(pread64(fd, got, opaque(sizeof got), 290));
  const int at = CALL(openat(AT_FDCWD, path, opaque(O_RDONLY)));
  t.expect_served(at);
  const int wide = CALL(open64(path, opaque(O_RDONLY)));
  t.expect_served(wide);
  CALL(openat64(AT_FDCWD, path, opaque(O_RDONLY)));
  pollfd one[1] = {{wide, POLLIN, 0}};
  CALL(poll(one, opaque(1UL), 0));
  const timespec now{};
  CALL(ppoll(one, opaque(1UL), &now, nullptr));
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", at);
  const ssize_t n = readlink(name, got, opaque(sizeof got) - 1);
  (void)n;
  t.path("realpath", realpath(path, name));
  FILE* const stream = STDIO(nullptr, fopen(path, "r"));
  CALL(fread(got, 1, opaque(sizeof got), stream));
  t.bytes("fread", got, sizeof got);
  CALL(fgets(got, opaque(20), stream) != nullptr);
  CALL(fclose(stream));
}

PARITY(Fortify, TooSmallBuffersEndTheProgram) {
  const int fd = CALL(open(t.file("a", 300), O_RDONLY));
  for (int which = 0; which < 2; ++which) {
    const int status = t.in_child([&] {
      close(2);
      char got[8];
      if (which == 0) CALL(read(fd, got, opaque(9UL)));
      if (which == 1) CALL(pread(fd, got, opaque(9UL), 0));
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  }
}
