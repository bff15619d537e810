// Limits of the process. A number that is parked is closed as far as the program knows: under a lowered limit of fds it must
// not be given to an open that the kernel would refuse.
#include <sys/resource.h>

#include "shim/exports.h"
#include "shim/new_fds.h"
#include "shim/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

int export_setrlimit(int resource, const struct ::rlimit* limit) {
  if (resource == RLIMIT_NOFILE) shim::expect_new_fd();
  return real::setrlimit(resource, limit);
}
int export_setrlimit64(int resource, const struct ::rlimit64* limit) {
  if (resource == RLIMIT_NOFILE) shim::expect_new_fd();
  return real::setrlimit64(resource, limit);
}
int export_prlimit(pid_t process, int resource, const struct ::rlimit* limit, struct ::rlimit* before) {
  if (resource == RLIMIT_NOFILE && limit != nullptr) shim::expect_new_fd();
  return real::prlimit(process, resource, limit, before);
}
int export_prlimit64(pid_t process, int resource, const struct ::rlimit64* limit, struct ::rlimit64* before) {
  if (resource == RLIMIT_NOFILE && limit != nullptr) shim::expect_new_fd();
  return real::prlimit64(process, resource, limit, before);
}
