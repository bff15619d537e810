// Can a program read there? A page of a mapped file is gone when somebody cuts the file short, and
// a look at it ends the program. Thread safety: yes; async-signal-safe.
#pragma once

#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// The 8 bytes there. By the cheapest call that reads memory, a signal set: where it cannot, it says
// so. It does nothing else, for there is no such `how`.
inline bool can_read(const void* at) {
  constexpr long k_no_how = -1;
  return sys::raw(SYS_rt_sigprocmask, k_no_how, sys::arg(at), 0, 8) != -EFAULT;
}

// The aligned word that this byte is in, and so all of its page.
inline bool can_read_around(std::uintptr_t address) {
  return can_read(reinterpret_cast<const void*>(
      address & ~std::uintptr_t{7}));  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace cube::base
