// A view is the part of the file tree that a process can see: its root and its rights, since this
// boot. Processes of one view find the same file under a path and may read the same files; of two
// views, neither is certain. Thread safety: pure but for the system calls; async-signal-safe.
#pragma once

#include <cstdint>

namespace cube::base {

// The rights by which the kernel, and a server that asks for no more than user and groups, lets
// this process open a file: user, groups, capabilities to override modes, user namespace, security
// label. Never 0. Nodes of one cluster have the same number for the same rights. A process that is,
// or may be, in a Landlock domain has a number that only its forked children share.
std::uint64_t current_rights();

struct View {
  static constexpr std::uint64_t k_free = 0, k_ended = 1;  // no view has these
  std::uint64_t number = k_free;
  std::uint64_t rights = 0;
  // The kernel gives what the number is made of to nobody else before the next boot. If not, it
  // may, as soon as no process of the view lives.
  bool is_lasting = false;
};
View current_view();

}  // namespace cube::base
