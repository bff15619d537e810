// A view is the part of the file tree that a process can see: its mount namespace, its root directory and its permissions, since
// this boot. Processes of one view find the same file under a path and may read the same files; of two views, neither is certain.
// Thread safety: pure but for the system calls; async-signal-safe.
#pragma once

#include <cstdint>

namespace cube::base {

// Never 0. Does not cover security labels (SELinux, AppArmor).
std::uint64_t current_view();

}  // namespace cube::base
