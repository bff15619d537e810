// Turns the effect of a memory access into a result.
#pragma once

#include <csetjmp>
#include <csignal>

namespace cube::tests {

inline sigjmp_buf g_before_fault;

// The signal that the access raises, or 0. One thread at a time; the access must own nothing that
// needs a destructor.
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
