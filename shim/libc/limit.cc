// Limits of the process. To the program, a parked fd is closed. So after the program lowers the
// limit of fds, no open may return a parked fd above the limit.
#include <sys/resource.h>

#include "cache/base/memory/can_read.h"
#include "cache/base/process/lifted_fd_limit.h"
#include "shim/calls/new_fds.h"
#include "shim/fd/materialize.h"
#include "shim/fd/placeholder.h"
#include "shim/libc/exports.h"
#include "shim/process/process.h"
#include "shim/process/real_libc.h"
#include "shim/process/user_pointer.h"

namespace shim = cube::shim;
namespace real = cube::shim::real;

namespace {

// The new limit may forbid another fd, or a copy as large as a file. Materializes the open files
// that could then no longer be materialized.
void before_limit(int resource, std::uint64_t soft, std::uint64_t hard) {
  if (resource == RLIMIT_NOFILE) shim::expect_new_fd();
  const bool may_be_too_low =
      resource == RLIMIT_NOFILE
          ? hard < static_cast<std::uint64_t>(shim::g_fds.end())
          : resource == RLIMIT_FSIZE && soft != std::uint64_t{RLIM64_INFINITY};
  if (may_be_too_low && shim::process::owns_table())
    shim::materialize_all(/*only_inherited=*/false, "setrlimit");
}

// Only the kernel can safely follow an invalid pointer.
template <typename Limit>
bool is_readable(const Limit* limit) {
  const std::uintptr_t begin = shim::address_of(limit);
  return !shim::is_bad_pointer(limit, sizeof *limit) && cube::base::can_read_around(begin) &&
         cube::base::can_read_around(begin + sizeof *limit - 1);
}

// If `process` is 0, sets the limit of the calling process.
template <typename Limit, typename Call>
int set_limit(pid_t process, int resource, const Limit* limit, Call&& call) {
  const bool matters = resource == RLIMIT_NOFILE || resource == RLIMIT_FSIZE;
  if (!matters || !is_readable(limit)) return call();
  before_limit(resource, limit->rlim_cur, limit->rlim_max);
  const bool is_own =
      shim::process::owns_table() && (process == 0 || process == cube::base::sys::getpid());
  const int result = resource == RLIMIT_NOFILE && is_own
                         ? cube::base::LiftedFdLimit::set_by_program(call)
                         : static_cast<int>(call());
  if (resource == RLIMIT_NOFILE && result == 0 && shim::process::owns_table())
    shim::placeholder::note_limit();
  return result;
}

}  // namespace

int export_setrlimit(int resource, const struct ::rlimit* limit) {
  return set_limit(0, resource, limit, [&] { return real::setrlimit(resource, limit); });
}
int export_setrlimit64(int resource, const struct ::rlimit64* limit) {
  return set_limit(0, resource, limit, [&] { return real::setrlimit64(resource, limit); });
}
int export_prlimit(pid_t process, int resource, const struct ::rlimit* limit,
                   struct ::rlimit* before) {
  return set_limit(process, resource, limit,
                   [&] { return real::prlimit(process, resource, limit, before); });
}
int export_prlimit64(pid_t process, int resource, const struct ::rlimit64* limit,
                     struct ::rlimit64* before) {
  return set_limit(process, resource, limit,
                   [&] { return real::prlimit64(process, resource, limit, before); });
}
