// Marks a call of this thread that was not answered from memory alone. Code that asks the kernel,
// an origin or a tier for a program's call sets the mark; a hit never does. The profiler
// (shim/profile) counts the time of a marked call as lost to the origin. Thread safety and
// async-signal safety: a thread's own. A handler may set the mark of the call that it interrupts.
#pragma once

namespace cube::base {

inline constinit thread_local bool t_went_out [[gnu::tls_model("initial-exec")]] = false;
inline void note_way_out() { t_went_out = true; }

}  // namespace cube::base
