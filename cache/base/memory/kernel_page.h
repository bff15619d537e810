// The page size of the running kernel: 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64. mmap, mremap
// and madvise accept only multiples of this size. The formats of files and of the region do not
// depend on this size: they use the constant k_page (cache/record/record.h). Thread-safe;
// async-signal-safe.
#pragma once

#include <sys/auxv.h>

#include <cstdint>

namespace cube::base {

inline std::uint64_t kernel_page() { return getauxval(AT_PAGESZ); }

}  // namespace cube::base
