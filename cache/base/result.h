// The result type of the library: a value, or the errno of a failure. Thread safety: plain values.
// Only the shim (shim/) turns an Errno into -1 and errno.
#pragma once

#include <tl/expected.hpp>

namespace cube::base {

struct Errno {
  int value = 0;
  friend bool operator==(Errno, Errno) = default;
};

template <typename T>
using Result = tl::expected<T, Errno>;

inline tl::unexpected<Errno> fail(int errno_value) {
  return tl::unexpected<Errno>(Errno{errno_value});
}

}  // namespace cube::base
