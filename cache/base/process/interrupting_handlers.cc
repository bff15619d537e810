#include "cache/base/process/interrupting_handlers.h"

#include <csignal>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {
namespace {

struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  std::uint64_t mask;
};

bool is_synchronous(int number) {
  return number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE ||
         number == SIGTRAP || number == SIGABRT || number == SIGSYS;
}

}  // namespace

bool handlers_interrupt_calls() {
  // libc uses the first two real-time signals itself.
  constexpr int k_last = 64, k_of_libc[] = {32, 33};
  bool has_any = false;
  for (int number = 1; number <= k_last; ++number) {
    if (is_synchronous(number) || number == k_of_libc[0] || number == k_of_libc[1]) continue;
    KernelAction action{};
    if (sys::failed(sys::raw(SYS_rt_sigaction, number, 0, sys::arg(&action), sizeof action.mask)))
      continue;
    const bool has_handler = action.handler != SIG_DFL && action.handler != SIG_IGN;
    if (has_handler && (action.flags & SA_RESTART) != 0) return false;
    has_any = has_any || has_handler;
  }
  return has_any;
}

}  // namespace cube::base
