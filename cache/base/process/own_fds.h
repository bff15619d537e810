// The fd table of a thread.
#pragma once

namespace cube::base {

// True in a thread of the library that has its own fd table, separate from the table of the
// program's threads.
inline constinit thread_local bool t_has_own_fds [[gnu::tls_model("initial-exec")]] = false;

}  // namespace cube::base
