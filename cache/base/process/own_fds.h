// The fd table of a thread.
#pragma once

namespace cube::base {

// Whether the calling thread is a thread of the library that has its own fd table, separate from
// that of the program's threads.
inline constinit thread_local bool t_has_own_fds [[gnu::tls_model("initial-exec")]] = false;

}  // namespace cube::base
