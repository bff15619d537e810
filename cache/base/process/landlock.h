// Tells whether this process was born into a Landlock domain. The kernel has no call that tells
// this, but it allows at most 16 domains for a process. So a child enters further domains until the
// kernel refuses. The number of domains that the child could enter shows how many domains the
// process was born with. Thread-safe and async-signal-safe.
#pragma once

namespace cube::base {

// Also true if the answer is not known. The reason can be a seccomp filter that may kill the
// process for such calls, or that no child can be created.
bool may_be_in_landlock_domain();

}  // namespace cube::base
