// Holds back all signals of this thread: a handler must not wait for what the code that it interrupts holds, nor leave it
// held by a jump (siglongjmp). Thread safety and async-signal safety: yes.
#pragma once

#include <csignal>
#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

class BlockSignals {
 public:
  BlockSignals() {
    const std::uint64_t all = ~0ULL;
    sys::raw(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&all), sys::arg(&before_), sizeof before_);
  }
  ~BlockSignals() { sys::raw(SYS_rt_sigprocmask, SIG_SETMASK, sys::arg(&before_), 0, sizeof before_); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  std::uint64_t before_ = 0;
};

}  // namespace cube::base
