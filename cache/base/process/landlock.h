// Tells whether this process is in a Landlock domain. No system call answers this question, but the
// kernel allows at most 16 domains for a process. So a child process enters domains until the
// kernel refuses. If the child can enter fewer than 16 domains, it has inherited a domain from this
// process. Thread-safe and async-signal-safe.
#pragma once

namespace cube::base {

// Also true if the answer is not known, because no child can be created, or because a seccomp
// filter may kill a process for these calls.
bool may_be_in_landlock_domain();

}  // namespace cube::base
