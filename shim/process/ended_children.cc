#include "shim/process/ended_children.h"

#include <sys/wait.h>

#include <cerrno>

#include "shim/process/attachment.h"
#include "shim/process/c_result.h"

namespace cube::shim::ended_children {
namespace {

namespace sys = base::sys;

void note_ended(std::uint32_t pid) {
  if (!process::is_active() || !process::owns_table()) return;
  // If the region's file was removed, the child may have made another region and reported its
  // changes only there.
  if (auto* const cache = attachment::attached_cache();
      cache != nullptr && !cache->region().is_named())
    return process::disable("the region's file was removed");
  attachment::note_child_ended(pid);
}

// True if the kernel reaps children without a wait. A wait that finds no child then means that all
// children have ended.
bool are_reaped_unseen() {
  struct KernelAction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    unsigned long mask;
  } action{};
  if (sys::failed(sys::raw(SYS_rt_sigaction, SIGCHLD, 0, sys::arg(&action), sizeof action.mask)))
    return false;
  return action.handler == SIG_IGN || (action.flags & SA_NOCLDWAIT) != 0;
}

void note_none() {
  const KeepErrno keep;
  if (errno == ECHILD && process::is_active() && are_reaped_unseen()) note_ended(0);
}

}  // namespace

void note_waited(long result, int status) {
  if (result < 0) return note_none();
  if (result > 0 && (WIFEXITED(status) || WIFSIGNALED(status)))
    note_ended(static_cast<std::uint32_t>(result));
}

void note_waited(long result, const siginfo_t& info) {
  if (result < 0) return note_none();
  const bool has_ended =
      info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  if (info.si_pid > 0 && has_ended) note_ended(static_cast<std::uint32_t>(info.si_pid));
}

void note_ended() { note_ended(0); }

}  // namespace cube::shim::ended_children
