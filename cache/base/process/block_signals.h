// Blocks all signals of this thread for a scope. Otherwise a handler could wait for a lock that the
// interrupted code holds, or jump out (siglongjmp) while that lock is held. Thread-safe and
// async-signal-safe.
#pragma once

#include <csignal>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// The signals that this thread blocks: bit 0 is signal 1.
inline std::uint64_t blocked_signals() {
  std::uint64_t blocked = 0;
  sys::raw(SYS_rt_sigprocmask, SIG_BLOCK, 0, sys::arg(&blocked), sizeof blocked);
  return blocked;
}

class BlockSignals {
 public:
  static constexpr std::uint64_t k_all = ~0ULL;
  // All signals except 32 and 33, which libc uses itself. libc's setuid() sends signal 33 to each
  // thread that libc has created, and waits until each has handled it.
  static constexpr std::uint64_t k_but_libcs = k_all & ~(3ULL << 31);

  explicit BlockSignals(std::uint64_t which = k_all) {
    sys::raw(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&which), sys::arg(&before_), sizeof before_);
  }
  ~BlockSignals() {
    sys::raw(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&before_), 0, sizeof before_);
  }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  std::uint64_t before_ = 0;
};

}  // namespace cube::base
