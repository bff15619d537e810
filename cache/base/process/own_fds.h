// The fd table of a thread.
#pragma once

namespace cube::base {

// Whether the calling thread has another fd table than the program's threads: it is a thread of the
// library.
inline constinit thread_local bool t_has_own_fds [[gnu::tls_model("initial-exec")]] = false;

}  // namespace cube::base
