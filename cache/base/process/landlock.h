// Tells whether this process was born into a Landlock domain. The kernel has no call for that, but
// it allows a process 16 domains at most: a child enters further domains until the kernel refuses,
// which shows how many it was born with. Thread-safe and async-signal-safe.
#pragma once

namespace cube::base {

// True if it is not known: under a seccomp filter that may kill for such calls, or if no child can
// be made.
bool may_be_in_landlock_domain();

}  // namespace cube::base
