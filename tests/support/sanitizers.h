// Tells a test about the sanitizer under which it runs.
#pragma once

#include "cache/base/sanitizers.h"

#if defined(CUBESHIM_LIBRARY_HAS_ASAN) || defined(__SANITIZE_ADDRESS__)
#define CUBE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CUBE_ASAN 1
#endif
#endif
#ifndef CUBE_ASAN
#define CUBE_ASAN 0
#endif

namespace cube::tests {

inline constexpr bool k_tsan = CUBE_TSAN != 0;
inline constexpr bool k_asan = CUBE_ASAN != 0;

}  // namespace cube::tests
