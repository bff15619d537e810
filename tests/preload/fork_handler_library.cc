// A library whose pthread_atfork handlers read a file: `prepare` opens it and reads 10 bytes, and
// `child` reads the next 10. Only the child continues to read, so the shared offset tells the
// parent how far the child has read.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

extern "C" {
int fork_handlers_fd = -1;
}

namespace {

void read_ten() {
  char got[10];
  if (read(fork_handlers_fd, got, sizeof got) != sizeof got) _exit(80);
}

void prepare() {
  const char* const path = getenv("FORK_HANDLER_FILE");
  if (fork_handlers_fd >= 0) close(fork_handlers_fd);
  fork_handlers_fd = open(path, O_RDONLY);
  read_ten();
}

__attribute__((constructor)) void load() { pthread_atfork(prepare, nullptr, read_ten); }

}  // namespace
