// Was a sandbox put on this thread, which may kill for a system call that the program itself would
// not make? What can be done without such calls is done without them then. Thread safety and
// async-signal safety: yes; for what happens once.
#pragma once

namespace cube::base {

// Also yes where it cannot be told.
bool may_be_sandboxed();

// A child that tries calls is itself a clone. It is known to be allowed if the process has other
// threads, or if its parent has as many filters: then the process was made under them. A later
// question may tell more.
bool is_clone_known_to_be_allowed();

}  // namespace cube::base
