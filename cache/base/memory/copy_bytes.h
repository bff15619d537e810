// Copies many bytes in memory: from a record to a program's buffer, or from a tier's buffer to a
// record. Uses memcpy, except in a case in which glibc's memcpy is slow. From 2 KiB on, glibc 2.29
// to 2.38 copies with `rep movsb`. On AMD's Zen 3 and Zen 4, this instruction takes 2 to 8 times as
// long if the target's offset within its page is 1 to 31 bytes larger than the source's
// (https://sourceware.org/bugzilla/show_bug.cgi?id=30994). This case is common, because a large
// record begins on a page, and a large buffer from malloc begins 16 bytes after the start of a
// page. doc/benchmarks/calls.md has the figures. Thread safety: as memcpy; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstring>

namespace cube::base {

// The methods of copying, one for each kind of processor. All have the same result.
enum class CopyWay : unsigned char {
  unknown,  // not determined yet; copy_long does not accept this
  plain,    // memcpy, in pieces small enough that it does not bypass the caches
  ahead,    // AVX2: where memcpy is slow, a loop that prefetches the bytes 4 KiB ahead
  by_page,  // Intel: memcpy of one page at a time, while the next page's first lines are prefetched
};

// The method for this processor. The first call determines it.
CopyWay copy_way();
// `n` is at least k_long_copy.
void copy_long(CopyWay way, void* to, const void* from, std::size_t n);

constexpr std::size_t k_long_copy = 2048;  // memcpy uses `rep movsb` from 2,112 bytes on

// Both addresses may be null if `n` is 0.
inline void copy_bytes(void* to, const void* from, std::size_t n) {
  if (n >= k_long_copy)
    copy_long(copy_way(), to, from, n);
  else if (n != 0)
    std::memcpy(to, from, n);
}

}  // namespace cube::base
