// Reads of three kinds of served files: locked files, files whose bytes arrive as the program reads
// them (cache/fill/partial_fill.h), and objects whose bytes arrive in blocks
// (cache/fill/large/large_object.cc). Bytes that are in memory are copied; all other bytes are
// fetched, or read by the kernel. Each move of the offset is repeated in the kernel. The caller has
// claimed the bytes, which lie within the file. Thread-safe and async-signal-safe.
#pragma once

#include <sys/uio.h>

#include "shim/fd/open_file.h"

namespace cube::shim::origins {

// read and readv return a count of bytes, or -errno. `at` is the claimed offset. The file's offset
// is moved back by the number of bytes that were not read.
[[gnu::noinline, gnu::cold]] long read(OpenFile& file, int fd, void* to, std::size_t n,
                                       std::uint64_t at);
[[gnu::noinline, gnu::cold]] long readv(OpenFile& file, int fd, const struct ::iovec* parts,
                                        std::uint64_t at, std::size_t n);
// Like read and readv, but without a claimed offset.
[[gnu::noinline, gnu::cold]] long pread(OpenFile& file, int fd, void* to, std::size_t n,
                                        std::uint64_t at);
[[gnu::noinline, gnu::cold]] long preadv(OpenFile& file, int fd, const struct ::iovec* parts,
                                         std::uint64_t at, std::size_t n);

// Call this before the file is mapped. Fetches the whole file, if possible.
[[gnu::noinline, gnu::cold]] void bring_all(OpenFile& file, int fd);

}  // namespace cube::shim::origins
