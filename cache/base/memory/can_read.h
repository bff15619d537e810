// Tells whether an address can be read. A page of a mapped file vanishes when the file is
// truncated, and a load from it then ends the program. Thread-safe; async-signal-safe.
#pragma once

#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// Checks 8 bytes with the cheapest call that reads memory. rt_sigprocmask fails with EFAULT if it
// cannot read the signal set; otherwise it does nothing, because its `how` is invalid.
inline bool can_read(const void* at) {
  constexpr long k_no_how = -1;
  return sys::raw(SYS_rt_sigprocmask, k_no_how, sys::arg(at), 0, 8) != -EFAULT;
}

// Checks the aligned word that contains this byte, and with it the page.
inline bool can_read_around(std::uintptr_t address) {
  return can_read(reinterpret_cast<const void*>(
      address & ~std::uintptr_t{7}));  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace cube::base
