// The only hash function of the project: xxh3, 64 bits. Record headers, record data and index keys
// use it, so it is part of the format (doc/FORMAT.md). Thread safety: pure functions.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <string_view>

namespace cube::base {

inline std::uint64_t hash_bytes(const void* data, std::size_t n) { return XXH3_64bits(data, n); }
inline std::uint64_t hash_path(std::string_view path) {
  return XXH3_64bits(path.data(), path.size());
}

// Computes the hash of bytes that are added in parts. The result equals hash_bytes of all bytes
// together.
class Hasher {
 public:
  Hasher() { XXH3_64bits_reset(&state_); }
  void add(const void* data, std::size_t n) { XXH3_64bits_update(&state_, data, n); }
  std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

// The hash of a file's device and inode. The index contains both these hashes and hashes of paths.
inline std::uint64_t hash_inode(std::uint64_t device, std::uint64_t inode) {
  const std::uint64_t key[3] = {0x696e6f6465ULL, device, inode};
  return XXH3_64bits(key, sizeof key);
}

}  // namespace cube::base
