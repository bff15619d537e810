// The key under which the cluster stores a file, a block of a file, or a listing. The key consists
// of "cs2:", the namespace, and 32 hex digits: a hash of the origin's id and of the path below the
// prefix. Thread safety: plain values; nothing is allocated; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cube::cache {

class ClusterKey {
 public:
  ClusterKey() = default;
  // Distinguishes the listing of a directory from a file that has the same path later.
  enum class Of : std::uint8_t { file, listing };
  // `space` is CUBESHIM_CLUSTER_NAME. `origin` is hash_of_origin of the id of the prefix. `path` is
  // the path below the prefix without a leading slash, or the BlockName of a block
  // (block_record.h).
  ClusterKey(std::string_view space, std::uint64_t origin, std::string_view path, Of of = Of::file);
  static std::uint64_t hash_of_origin(std::string_view id);

  std::string_view text() const { return {text_, size_}; }
  // The hash of the key, for home_of_key.
  std::uint64_t hash() const;

 private:
  static constexpr std::size_t k_longest_space = 64, k_digits = 32;
  char text_[4 + k_longest_space + k_digits];
  std::uint8_t size_ = 0;
};

}  // namespace cube::cache
