// Reads of a served file whose fd is the origin's own: one that was locked, or one whose bytes
// arrive as they are read (cache/fill/partial_fill.h); or of an object whose bytes arrive in blocks
// (cache/fill/large/large_object.cc). Bytes that are in memory are copied from memory; the others
// are fetched, or read by the kernel. Each move of the offset is repeated in the kernel. The caller
// has claimed the bytes, and the file has them. Thread-safe and async-signal-safe.
#pragma once

#include <sys/uio.h>

#include "shim/fd/open_file.h"

namespace cube::shim::origins {

// Each returns a count of bytes, or -errno. `at` is the claimed offset, which is moved back by the
// bytes that were not read.
[[gnu::noinline, gnu::cold]] long read(OpenFile& file, int fd, void* to, std::size_t n,
                                       std::uint64_t at);
[[gnu::noinline, gnu::cold]] long readv(OpenFile& file, int fd, const struct ::iovec* parts,
                                        std::uint64_t at, std::size_t n);
// Like read and readv, but without a claimed offset.
[[gnu::noinline, gnu::cold]] long pread(OpenFile& file, int fd, void* to, std::size_t n,
                                        std::uint64_t at);
[[gnu::noinline, gnu::cold]] long preadv(OpenFile& file, int fd, const struct ::iovec* parts,
                                         std::uint64_t at, std::size_t n);

// Call it before the file is mapped: fetches all of it, if possible.
[[gnu::noinline, gnu::cold]] void bring_all(OpenFile& file, int fd);

}  // namespace cube::shim::origins
