// Pointers that the kernel would answer with EFAULT and that can be told by their value: null and beyond the end of a
// program's addresses. One that points into unmapped memory cannot be told (doc/SEMANTICS.md).
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cube::shim {

#if defined(__x86_64__)
inline constexpr std::uintptr_t k_user_end = 0x7ffffffff000;
#else
inline constexpr std::uintptr_t k_user_end = 1ULL << 52;
#endif

inline bool is_bad_range(const void* at, std::size_t n) {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  return n > k_user_end || begin > k_user_end - n;
}
inline bool is_bad_pointer(const void* at, std::size_t n) { return at == nullptr || is_bad_range(at, n); }

}  // namespace cube::shim
