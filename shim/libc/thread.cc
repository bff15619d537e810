// Calls on other threads.
#include "shim/libc/exports.h"
#include "shim/process/cancellation.h"
#include "shim/process/real_libc.h"

namespace cube::shim {
constinit std::atomic<bool> g_may_be_cancelled{false};
}

int export_pthread_cancel(pthread_t thread) {
  // The mark is set before the request. A thread that sees the mark late acts at its next call.
  cube::shim::g_may_be_cancelled.store(true, std::memory_order_seq_cst);
  return cube::shim::real::pthread_cancel(thread);
}
