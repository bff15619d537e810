// Benchmarks of single calls that do not concern a prefix. Thread safety: register them one time,
// before running them.
#pragma once

#include <cstdint>
#include <string>

namespace cube::bench {

// Makes a small tree below `directory`, which is removed at exit, and registers a benchmark for
// each call. The cost of mmap and munmap varies by some hundred nanoseconds with the shape of the
// kernel's tree of mappings, even without a preloaded library. `layout` therefore adds up to 63
// mappings, so that a median can be taken over many layouts.
void register_call_benchmarks(const std::string& directory, std::uint64_t layout);

}  // namespace cube::bench
