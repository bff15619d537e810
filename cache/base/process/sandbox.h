// Tells whether this thread runs in a sandbox, which may kill the process for a system call that
// the program itself would not make. In a sandbox the library avoids such calls where it can.
// Thread-safe and async-signal-safe. Slow: for code that runs once.
#pragma once

namespace cube::base {

// True also if that cannot be determined.
bool may_be_sandboxed();

// Whether clone(2) is known to be allowed, without which calls cannot be tried in a child. It is
// allowed if the process has other threads. It is also allowed if the parent has as many filters,
// because the process was then created under these filters. A later call may return true even if an
// earlier one did not.
bool is_clone_known_to_be_allowed();

}  // namespace cube::base
