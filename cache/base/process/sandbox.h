// Tells whether this thread runs in a sandbox, which may kill the process for a system call that
// the program itself would not make. In a sandbox the library avoids such calls where it can.
// Thread-safe and async-signal-safe. The functions are slow, so only code that runs once in a
// process should call them.
#pragma once

namespace cube::base {

// Whether this thread may be in a sandbox. Also true if that cannot be determined.
bool may_be_sandboxed();

// Whether clone(2) is known to be allowed, so that a child process can try out other calls.
// clone(2) is allowed if the process has other threads. clone(2) is also allowed if the parent
// process has the same number of seccomp filters, because this process was then created under these
// filters. The result can change from false to true.
bool is_clone_known_to_be_allowed();

}  // namespace cube::base
