// try_to() runs a function that may throw for lack of memory. Thread safety: the same as that of
// the function.
#pragma once

namespace cube::prefetch {

// Returns false if the function threw. On an engine's thread, no caller could catch the exception,
// so a note that finds no memory is skipped.
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
