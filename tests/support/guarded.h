// Turns the signal of a bad memory access into a result.
#pragma once

#include <csetjmp>
#include <csignal>

namespace cube::tests {

inline sigjmp_buf g_before_fault;

// Returns the signal that the access raises, or 0. Only one thread at a time may call it. The
// access must not own anything that needs a destructor.
template <typename Touch>
int guarded(Touch&& touch) {
  struct ::sigaction action {
  }, bus{}, segv{};
  action.sa_handler = [](int number) { siglongjmp(g_before_fault, number); };
  sigaction(SIGBUS, &action, &bus);
  sigaction(SIGSEGV, &action, &segv);
  const int fault = sigsetjmp(g_before_fault, 1);
  if (fault == 0) touch();
  sigaction(SIGBUS, &bus, nullptr);
  sigaction(SIGSEGV, &segv, nullptr);
  return fault;
}

}  // namespace cube::tests
