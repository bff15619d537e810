// Numbers for fds that live but for a moment, where the program is at its limit of them.
// Thread safety: all of it; async-signal-safe.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "cache/base/sys.h"

namespace cube::base {

// Room above the program's limit of fds, for as long as this lives: it may have lowered the limit below what it has open.
// An unprivileged process has no such room if its hard limit is as low.
class LiftedFdLimit {
 public:
  LiftedFdLimit() {
    if (sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, sys::arg(&before_)))) return;
    struct ::rlimit wide = before_;
    wide.rlim_cur = std::max<rlim_t>(before_.rlim_cur, 1 << 17);
    wide.rlim_max = std::max(wide.rlim_max, wide.rlim_cur);
    lifted_ = set(wide);
    wide.rlim_cur = wide.rlim_max = before_.rlim_max;
    if (!lifted_ && before_.rlim_cur < before_.rlim_max) lifted_ = set(wide);
  }
  ~LiftedFdLimit() {
    if (lifted_) set(before_);
  }
  LiftedFdLimit(const LiftedFdLimit&) = delete;
  LiftedFdLimit& operator=(const LiftedFdLimit&) = delete;

 private:
  static bool set(const struct ::rlimit& limit) {
    return !sys::failed(sys::raw(SYS_prlimit64, 0, RLIMIT_NOFILE, sys::arg(&limit)));
  }
  struct ::rlimit before_ {};
  bool lifted_ = false;
};

// A call that makes an fd above the limit if there is no number below it; or -EMFILE.
template <typename Call>
long within_lifted_fd_limit(Call&& call) {
  const long fd = call();
  if (fd != -EMFILE) return fd;
  const LiftedFdLimit lifted;
  return call();
}

}  // namespace cube::base
