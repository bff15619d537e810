// Was this process born into a Landlock domain? The kernel tells nobody. But a process may be in 16
// domains at most, so a child that enters domains of its own until it is refused counts those that
// it was born with. Thread safety and async-signal safety: yes.
#pragma once

namespace cube::base {

// True if it cannot be told: under a seccomp filter that may kill for such calls, or if there can
// be no child.
bool may_be_in_landlock_domain();

}  // namespace cube::base
