// The effect of touching memory is a result like any other.
#pragma once

#include <csetjmp>
#include <csignal>

namespace cube::tests {

inline sigjmp_buf g_before_fault;

// The signal that the touch brings, or 0. One thread at a time; the touch must own nothing that
// needs an end.
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
