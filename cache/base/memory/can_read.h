// Tells whether the memory at an address can be read. If a mapped file is truncated, its last pages
// vanish, and a load from such a page kills the program. Thread-safe; async-signal-safe.
#pragma once

#include <cstdint>

#include "cache/base/sys.h"

namespace cube::base {

// Checks 8 bytes with the cheapest system call that reads memory. rt_sigprocmask fails with EFAULT
// if it cannot read the signal set. If the signal set can be read, the call still changes nothing,
// because the argument `how` is invalid.
inline bool can_read(const void* at) {
  constexpr long k_no_how = -1;
  return sys::raw(SYS_rt_sigprocmask, k_no_how, sys::arg(at), 0, 8) != -EFAULT;
}

// Checks the page that contains this byte, by reading the byte's aligned word.
inline bool can_read_around(std::uintptr_t address) {
  return can_read(reinterpret_cast<const void*>(
      address & ~std::uintptr_t{7}));  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace cube::base
