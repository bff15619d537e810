// Decides whether a wait that a signal handler has interrupted must fail with EINTR. A blocking
// call of the kernel fails if the handler was installed without SA_RESTART; otherwise the kernel
// restarts the call. A futex wait with a timeout fails in both cases, so its caller must decide.
// Thread-safe and async-signal-safe.
#pragma once

namespace cube::base {

// True if the process has handlers, and all were installed without SA_RESTART. The interrupted call
// must then fail. Handlers of faults (SIGSEGV and similar) and of libc's own signals do not count.
bool handlers_interrupt_calls();

}  // namespace cube::base
