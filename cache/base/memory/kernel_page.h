// The page size of the running kernel: 4 KiB on x86-64; 4, 16 or 64 KiB on aarch64. mmap, mremap
// and madvise take only multiples of it. Formats of files and of the region do not depend on it
// (cache/record/record.h, k_page). Thread-safe; async-signal-safe.
#pragma once

#include <sys/auxv.h>

#include <cstdint>

namespace cube::base {

inline std::uint64_t kernel_page() { return getauxval(AT_PAGESZ); }

}  // namespace cube::base
