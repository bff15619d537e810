#include "cache/base/process/landlock.h"

#include <linux/landlock.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <charconv>
#include <string_view>

#include "cache/base/memory/mapping.h"
#include "cache/base/process/block_signals.h"
#include "cache/base/process/sandbox.h"

namespace cube::base {
namespace {

constexpr std::uint32_t k_most_domains = 16;  // LANDLOCK_MAX_NUM_LAYERS of the kernel

struct Found {
  bool is_wait_allowed = false;
  std::uint32_t free_domains = 0;
};

// Runs in a child while its parent waits. The child has its own rights and fd table, but may share
// the parent's memory. Not instrumented by AddressSanitizer: the function never returns, so a part
// of the parent's stack would stay poisoned.
[[noreturn, gnu::noinline]] __attribute__((no_sanitize("address"))) void
enter_domains_until_refused(Found& found, bool is_own_memory) {
  // Tries wait4 here, because the parent calls it next.
  sys::raw(SYS_wait4, -1, 0, WNOHANG | __WALL, 0);
  found.is_wait_allowed = true;
  // If a filter kills the child for a call, this prevents a core dump of the program's memory.
  if (is_own_memory) sys::raw(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
  const __u64 handled = LANDLOCK_ACCESS_FS_MAKE_BLOCK;
  const long rules = sys::raw(SYS_landlock_create_ruleset, sys::arg(&handled), sizeof handled, 0);
  if (rules == -EOPNOTSUPP) found.free_domains = k_most_domains;
  sys::raw(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  while (rules >= 0 && found.free_domains <= k_most_domains &&
         sys::raw(SYS_landlock_restrict_self, rules, 0) == 0)
    ++found.free_domains;
  for (;;) sys::raw(SYS_exit, 0);
}

// Not inlined, so that the child's frames lie below the frame of this function.
[[gnu::noinline]] std::uint32_t count_free_domains(bool is_sandboxed) {
  const auto shared = Mapping::shared_zeros(4096);
  if (!shared) return 0;
  auto& found = *new (shared->data()) Found;
  // No signal handler may run in the child.
  const BlockSignals block;
  // In a sandbox, the child does not share memory with its parent. Otherwise, if a filter killed
  // the child and the kernel dumped its memory, all processes that share this memory would die. The
  // end of the child raises no signal, and only a wait with __WALL or __WCLONE reports it.
  const long flags = CLONE_VFORK | CLONE_UNTRACED | (is_sandboxed ? 0 : CLONE_VM);
  const long child = sys::raw(SYS_clone, flags, 0, 0, 0, 0);
  if (child == 0) enter_domains_until_refused(found, is_sandboxed);
  if (sys::failed(child) || !found.is_wait_allowed) return 0;
  while (sys::raw(SYS_wait4, child, 0, __WALL, 0) == -EINTR) {
  }
  return found.free_domains;
}

// Decides by the release number of the kernel, because a filter may hide calls that the kernel has.
bool has_kernel_landlock() {
  char text[64];
  const long n = sys::read_small_file("/proc/sys/kernel/osrelease", text, sizeof text);
  const std::string_view release(text, sys::failed(n) ? 0 : static_cast<std::size_t>(n));
  unsigned major = 0, minor = 0;
  const char* const end = release.data() + release.size();
  const auto first = std::from_chars(release.data(), end, major);
  if (first.ec != std::errc{} || first.ptr == end ||
      std::from_chars(first.ptr + 1, end, minor).ec != std::errc{})
    return true;
  return major > 5 || (major == 5 && minor >= 13);
}

}  // namespace

bool may_be_in_landlock_domain() {
  if (!has_kernel_landlock()) return false;
  const bool is_sandboxed = may_be_sandboxed();
  if (is_sandboxed && !is_clone_known_to_be_allowed()) return true;
  if (!is_sandboxed) {
    const long version =
        sys::raw(SYS_landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version == -ENOSYS || version == -EOPNOTSUPP) return false;
  }
  return count_free_domains(is_sandboxed) != k_most_domains;
}

}  // namespace cube::base
