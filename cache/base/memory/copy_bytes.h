// Copies many bytes that lie in memory: of a record to a program's buffer, of a tier's buffer to a
// record. glibc's memcpy is the rule. It is left where it is slow: glibc 2.29 to 2.38 copies with
// `rep movsb` from 2 KiB on. That instruction takes 2 to 8 times as long on AMD's Zen 3 and Zen 4
// if the target begins 1 to 31 bytes behind the source, both counted from their pages
// (https://sourceware.org/bugzilla/show_bug.cgi?id=30994). A large record begins on a page, and
// malloc's large buffers begin 16 bytes behind one. Figures are in doc/benchmarks/calls.md. Thread
// safety: as memcpy; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstring>

namespace cube::base {

// One way for each kind of processor; each copies the same bytes.
enum class CopyWay : unsigned char {
  unknown,  // no processor's; not for copy_long
  plain,    // memcpy, in pieces that it does not write past the caches
  ahead,    // AVX2: a loop that asks for the bytes 4 KiB ahead, where memcpy is slow
  by_page,  // Intel: memcpy of one page at a time, while the next page's first lines are asked for
};

// The way of this processor. The first call asks the processor.
CopyWay copy_way();
// Does this processor have the instructions of `way`?
bool can_copy(CopyWay way);
// `n` is at least k_long_copy.
void copy_long(CopyWay way, void* to, const void* from, std::size_t n);

constexpr std::size_t k_long_copy = 2048;  // memcpy uses `rep movsb` from 2,112 bytes on

// The address of no bytes may be null.
inline void copy_bytes(void* to, const void* from, std::size_t n) {
  if (n >= k_long_copy)
    copy_long(copy_way(), to, from, n);
  else if (n != 0)
    std::memcpy(to, from, n);
}

}  // namespace cube::base
