// Recognizes, by their value, pointers that the kernel would refuse with EFAULT: pointers into the
// first page, and pointers beyond a program's address range. The value does not show whether a
// pointer leads to unmapped memory. path_filter::is_unmapped asks the kernel, for calls that can
// afford a system call (doc/SEMANTICS.md). Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cube::shim {

// Null and small numbers point into the first page, which no program has mapped.
inline constexpr std::uintptr_t k_user_begin = 4096;
#if defined(__x86_64__)
inline constexpr std::uintptr_t k_user_end = 0x7ffffffff000, k_address_bits = ~std::uintptr_t{0};
#else
// The processor ignores the top byte, in which the allocator (MTE) or HWASan may keep a tag.
inline constexpr std::uintptr_t k_user_end = 1ULL << 52, k_address_bits = (1ULL << 56) - 1;
#endif

inline std::uintptr_t address_of(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) & k_address_bits;
}
inline bool is_bad_range(const void* at, std::size_t n) {
  const std::uintptr_t begin = address_of(at);
  return n > k_user_end || begin > k_user_end - n;
}
inline bool is_in_first_page(const void* at) { return address_of(at) < k_user_begin; }
inline bool is_bad_pointer(const void* at, std::size_t n) {
  return is_in_first_page(at) || is_bad_range(at, n);
}

}  // namespace cube::shim
