/* Stands in for the library where a test asks whether it was asked to listen: leaves a file that
 * says how often. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int cubeshim_start_sidecar(void);

int cubeshim_start_sidecar(void) {
  const int fd = open(getenv("SIDECAR_CALLS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  const long n = write(fd, "x", 1);
  close(fd);
  return n == 1 ? 0 : -1;
}
