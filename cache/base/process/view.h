// A view identifies what a process can see of the file tree: the root and the rights of the
// process, and the boot of the machine. Processes of one view find the same file under a path and
// have permission to read the same files. For processes of different views, this need not be true.
// Thread safety: pure except for the system calls; async-signal-safe.
#pragma once

#include <cstdint>

namespace cube::base {

// A hash of the rights that determine which files this process can open: user, groups, capabilities
// to override modes, user namespace, security label. The hash covers the checks of the kernel, and
// of a server that checks only user and groups. Never 0. The hash of the same rights is the same on
// all nodes of a cluster. A process that may be in a Landlock domain shares its hash only with its
// forked children.
std::uint64_t current_rights();

// True if access(2) checks the same rights as open(2). For that, the real ids must be the effective
// ids. Also, the process must have no capabilities to override modes, because access(2) heeds these
// only if the real user is root.
bool access_has_own_rights();

struct View {
  static constexpr std::uint64_t k_free = 0, k_ended = 1;  // no view has these
  std::uint64_t number = k_free;
  std::uint64_t rights = 0;
  // True: until the next boot, the kernel reuses none of the ids that `number` is made of. False:
  // the kernel may reuse them when no process of the view is left.
  bool is_lasting = false;
};
View current_view();

}  // namespace cube::base
