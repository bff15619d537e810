// Tells whether a signal handler that has run during a wait should end the wait, as it would end a
// blocking call of the kernel: with EINTR, unless the handler was installed with SA_RESTART. A
// futex with a timeout does not report this. Thread-safe and async-signal-safe.
#pragma once

namespace cube::base {

// True if handlers have run and none has SA_RESTART, so the call must not continue. The signals
// that libc sends to threads do not count.
bool handlers_interrupt_calls();

}  // namespace cube::base
