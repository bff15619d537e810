// Limits of the process. A parked fd is closed as far as the program knows: under a lowered limit
// of fds, no open may return an fd that the kernel would refuse.
#include <sys/resource.h>

#include "shim/calls/new_fds.h"
#include "shim/fd/placeholder.h"
#include "shim/libc/exports.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

template <typename Call>
int set_limit(bool is_of_fds, Call&& call) {
  if (is_of_fds) shim::expect_new_fd();
  const int result = call();
  if (is_of_fds && result == 0 && shim::process::owns_table()) shim::placeholder::note_limit();
  return result;
}

}  // namespace

int export_setrlimit(int resource, const struct ::rlimit* limit) {
  return set_limit(resource == RLIMIT_NOFILE, [&] { return real::setrlimit(resource, limit); });
}
int export_setrlimit64(int resource, const struct ::rlimit64* limit) {
  return set_limit(resource == RLIMIT_NOFILE, [&] { return real::setrlimit64(resource, limit); });
}
int export_prlimit(pid_t process, int resource, const struct ::rlimit* limit,
                   struct ::rlimit* before) {
  return set_limit(resource == RLIMIT_NOFILE && limit != nullptr,
                   [&] { return real::prlimit(process, resource, limit, before); });
}
int export_prlimit64(pid_t process, int resource, const struct ::rlimit64* limit,
                     struct ::rlimit64* before) {
  return set_limit(resource == RLIMIT_NOFILE && limit != nullptr,
                   [&] { return real::prlimit64(process, resource, limit, before); });
}
