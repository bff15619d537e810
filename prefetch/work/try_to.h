// try_to() does what may throw for want of memory. Thread safety: that of what is done.
#pragma once

namespace cube::prefetch {

// A note is left out if there is no memory for it: a thread of an engine has nobody to throw to.
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
