// The cost of single calls that have nothing to do with a prefix. Thread safety: register once,
// before running.
#pragma once

#include <cstdint>
#include <string>

namespace cube::bench {

// Makes a small tree below `directory` (of its own, removed at exit) and registers a benchmark for
// each call. mmap and munmap take some hundred nanoseconds more or less with the shape of the
// kernel's tree of mappings, whatever is preloaded: `layout` adds up to 63 mappings, so that a
// median over many layouts can be taken.
void register_call_benchmarks(const std::string& directory, std::uint64_t layout);

}  // namespace cube::bench
