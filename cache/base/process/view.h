// A view identifies what a process can see of the file tree: the root and the rights of the
// process, and the boot of the machine. Processes of one view find the same file under a path and
// have permission to read the same files. For processes of different views, this need not be true.
// Thread safety: pure except for the system calls; async-signal-safe.
#pragma once

#include <cstdint>

namespace cube::base {

// A hash of the rights that determine which files this process can open: user, groups, capabilities
// that override file modes, user namespace, security label. The hash covers everything that the
// kernel checks, and everything that a server can check by user and groups. Never 0. Equal rights
// have equal hashes on all nodes of a cluster. Exception: only a process's forked children share
// its hash if it may be in a Landlock domain, if its groups cannot be read, or if its user
// namespace may not map all its ids.
std::uint64_t current_rights();

// Whether access(2) checks the same rights as open(2). The result is true if the real ids equal the
// effective ids, and the user is root or the process has no capabilities that override file modes.
// The user matters, because access(2) heeds such capabilities only if the real user is root.
bool access_has_own_rights();

struct View {
  static constexpr std::uint64_t k_free = 0, k_ended = 1;  // no view has these numbers
  std::uint64_t number = k_free;
  std::uint64_t rights = 0;
  // True: until the next boot, the kernel reuses none of the ids that `number` is made of. False:
  // the kernel may reuse them when no process of the view is left.
  bool is_lasting = false;
};
View current_view();

}  // namespace cube::base
