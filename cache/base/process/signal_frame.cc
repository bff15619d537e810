#include "cache/base/process/signal_frame.h"

#include <sys/auxv.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "cache/base/process/block_signals.h"
#include "cache/base/sys.h"

namespace cube::base {
namespace {

constexpr int k_signals = 64;

// The structure of the kernel's own call. On aarch64, the structure also has a restorer, but libc
// does not set the restorer.
struct KernelAction {
  std::uintptr_t handler;
  unsigned long flags;
  std::uintptr_t restorer;
  std::uint64_t mask;
};

constinit std::atomic<std::uintptr_t> g_first_thread{0};

std::uintptr_t own_thread() { return reinterpret_cast<std::uintptr_t>(__builtin_thread_pointer()); }

// The start (highest address) of this thread's stack: near the program's strings for the first
// thread, and the thread's control block for all others.
std::uintptr_t stack_begin() {
  return own_thread() == g_first_thread.load(std::memory_order_relaxed) ? getauxval(AT_RANDOM)
                                                                        : own_thread();
}

// The signals whose handlers may be running, one bit for each, and the addresses to which these
// handlers return.
struct Candidates {
  std::uint64_t signals = 0;
#if defined(__aarch64__)
  std::uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
#else
  std::uintptr_t returns[k_signals] = {};
  int count = 0;

  bool holds(std::uintptr_t word) const {
    return std::find(returns, returns + count, word) != returns + count;
  }
#endif
};

Candidates find_candidates() {
  Candidates found;
  const std::uint64_t blocked = blocked_signals();
  for (int signal = 1; signal <= k_signals; ++signal) {
    KernelAction action{};
    if (sys::failed(sys::raw(SYS_rt_sigaction, signal, 0, sys::arg(&action), sizeof action.mask)))
      continue;
    // With SA_RESETHAND, the kernel removes the handler when it starts, so the action no longer
    // shows it.
    const bool has_handler = action.handler > 1 || (action.flags & SA_RESETHAND) != 0;
    const std::uint64_t bit = 1ULL << (signal - 1);
    if (!has_handler || ((blocked & bit) == 0 && (action.flags & SA_NODEFER) == 0)) continue;
    found.signals |= bit;
#if defined(__x86_64__)
    if (!found.holds(action.restorer)) found.returns[found.count++] = action.restorer;
#endif
  }
  return found;
}

// The words of the stack, from the frame of the current call on. `end` points past the last word
// that is known to be readable.
struct StackWords {
  const std::uintptr_t *begin = nullptr, *end = nullptr;
};

// Whether this word marks the signal frame of a candidate.
#if defined(__x86_64__)
__attribute__((no_sanitize("address"))) bool is_frame(const std::uintptr_t* at,
                                                      const StackWords& stack,
                                                      const Candidates& candidates) {
  // A frame begins with the return address. The context follows, which ends with the signal mask
  // from before the signal.
  constexpr std::ptrdiff_t k_mask_at = 38;
  if (!candidates.holds(*at)) return false;
  return stack.end - at <= k_mask_at || (candidates.signals & ~at[k_mask_at]) != 0;
}
#else
// The return address is in a register, and the handler may store this address in signed form (PAC).
// So a frame is recognized by the SIMD registers, which the kernel puts right after the context.
// The signal mask from before the signal is stored at a fixed distance before these registers.
__attribute__((no_sanitize("address"))) bool is_frame(const std::uintptr_t* at,
                                                      const StackWords& stack,
                                                      const Candidates& candidates) {
  constexpr std::uintptr_t k_simd = std::uintptr_t{sizeof(fpsimd_context)} << 32 | FPSIMD_MAGIC;
  constexpr std::ptrdiff_t k_mask_before =
      (offsetof(ucontext_t, uc_mcontext) + offsetof(mcontext_t, __reserved) -
       offsetof(ucontext_t, uc_sigmask)) /
      sizeof *at;
  if (*at == k_simd && at - stack.begin >= k_mask_before)
    return (candidates.signals & ~at[-k_mask_before]) != 0;
  // gVisor does not write the word FPSIMD_MAGIC, so a return address into the vdso counts as a
  // frame, too. An address in the vdso's header does not count, because the stack of every program
  // contains the header's address.
  constexpr std::uintptr_t k_not_signed = (1ULL << 48) - 1, k_header = 64, k_most = 0x4000;
  const std::uintptr_t address = *at & k_not_signed, vdso = candidates.vdso;
  return vdso != 0 && address > vdso + k_header && address < vdso + k_most;
}
#endif

// The kernel reads the new mask before it rejects the invalid `how`.
bool is_readable(std::uintptr_t at) {
  constexpr long k_nothing = -1;
  return sys::raw(SYS_rt_sigprocmask, k_nothing, static_cast<long>(at), 0, sizeof(std::uint64_t)) ==
         -EINVAL;
}

}  // namespace

void remember_first_thread() {
  // Compares addresses instead of making a system call, for which a sandbox may kill the process.
  constexpr std::uintptr_t k_near = 64 << 20;
  if (getauxval(AT_RANDOM) - reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) < k_near)
    g_first_thread.store(own_thread(), std::memory_order_relaxed);
}

__attribute__((no_sanitize("address"))) bool may_be_in_handler(std::uintptr_t until) {
  const Candidates candidates = find_candidates();
  if (candidates.signals == 0) return false;
  constexpr std::uintptr_t k_page = 4096;
  const std::uintptr_t end =
      std::min(stack_begin(), until) / sizeof(std::uintptr_t) * sizeof(std::uintptr_t);
  auto at = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  // The current call runs on another stack, which lies above the thread's own.
  if (at >= end) return true;
  // The current call may run on another stack, which lies below the thread's own. Some memory
  // between the two stacks may be unreadable.
  std::uintptr_t known = at;
  StackWords stack{.begin = reinterpret_cast<const std::uintptr_t*>(at)};
  while (at < end) {
    const std::uintptr_t next = std::min(end, (at / k_page + 1) * k_page);
    for (; known < std::min(end, next + k_page); known = (known / k_page + 1) * k_page) {
      if (!is_readable(known)) return true;
    }
    stack.end = reinterpret_cast<const std::uintptr_t*>(std::min(end, known));
    for (; at < next; at += sizeof(std::uintptr_t)) {
      if (is_frame(reinterpret_cast<const std::uintptr_t*>(at), stack, candidates)) return true;
    }
  }
  return false;
}

}  // namespace cube::base
