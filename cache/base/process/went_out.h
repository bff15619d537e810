// Has a call of this thread left memory? The code that asks the kernel, an origin or a tier for a
// program's call leaves the mark. The profiler (shim/profile) takes the time of such a call for
// lost to the origin. A hit never comes here. Thread safety and async-signal safety: a thread's
// own. A handler may leave the mark in the call that it interrupts.
#pragma once

namespace cube::base {

inline constinit thread_local bool t_went_out [[gnu::tls_model("initial-exec")]] = false;
inline void note_way_out() { t_went_out = true; }

}  // namespace cube::base
