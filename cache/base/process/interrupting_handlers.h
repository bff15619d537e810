// Tells whether a signal handler that ran during a wait should end the wait with EINTR. As in a
// blocking call of the kernel, a handler ends the wait if it was installed without SA_RESTART. A
// futex with a timeout does not report this. Thread-safe and async-signal-safe.
#pragma once

namespace cube::base {

// True if handlers have run and none has SA_RESTART. The call must then fail. The signals that libc
// sends to its threads do not count.
bool handlers_interrupt_calls();

}  // namespace cube::base
