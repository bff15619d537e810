// Computes the chunk and the page of a byte of a large file, and the reverse. Thread safety: pure
// functions.
#pragma once

#include "cache/base/memory/kernel_page.h"
#include "cache/region/large/chunks.h"

namespace cube::cache {

inline constexpr std::uint64_t k_chunk_page = Chunks::k_page_bytes;

inline std::uint32_t chunk_of(std::uint64_t at) {
  return static_cast<std::uint32_t>(at / k_chunk_bytes);
}
inline std::uint32_t page_of(std::uint64_t at) {
  return static_cast<std::uint32_t>(at % k_chunk_bytes / k_chunk_page);
}

inline std::uint64_t byte_of(std::uint32_t chunk, std::uint32_t page) {
  return std::uint64_t{chunk} * k_chunk_bytes + std::uint64_t{page} * k_chunk_page;
}

// The pages that contain the bytes [at, end), which must lie in one chunk. The run is extended to
// whole pages of the kernel, because the kernel maps no smaller parts.
inline PageRun pages_of(std::uint64_t at, std::uint64_t end) {
  const std::uint64_t unit = base::kernel_page();
  const std::uint64_t chunk = at / k_chunk_bytes * k_chunk_bytes;
  const auto page_at = [&](std::uint64_t byte) {
    return static_cast<std::uint32_t>((byte - chunk) / k_chunk_page);
  };
  return {page_at(at / unit * unit), page_at((end + unit - 1) / unit * unit)};
}

}  // namespace cube::cache
