// try_to() runs a function that may throw for lack of memory. Thread safety: that of the function.
#pragma once

namespace cube::prefetch {

// Returns false if it threw. If there is no memory for a note, it is skipped, because on an
// engine's thread no caller could catch the exception.
template <typename Do>
bool try_to(Do&& what) noexcept {
  try {
    what();
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace cube::prefetch
