// The name of a file in the cluster, of a block of one, or of a listing: "cs2:", the namespace, and
// 32 hex digits of the hash of the origin's id and the path below the prefix. Thread safety: plain
// values; nothing is allocated; async-signal-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::cache {

class ClusterKey {
 public:
  ClusterKey() = default;
  // A directory's listing has another key than a file that takes its path.
  enum class Of : std::uint8_t { file, listing };
  // `space`: CUBESHIM_CLUSTER_NAME. `origin`: hash_of_origin of the id of the prefix. `path`: below
  // the prefix, without a slash at its begin; of a block, its BlockName (block_record.h).
  ClusterKey(std::string_view space, std::uint64_t origin, std::string_view path, Of of = Of::file);
  static std::uint64_t hash_of_origin(std::string_view id);

  std::string_view text() const { return {text_, size_}; }
  // For the choice of a server.
  std::uint64_t hash() const;

 private:
  static constexpr std::size_t k_longest_space = 64, k_digits = 32;
  char text_[4 + k_longest_space + k_digits];
  std::uint8_t size_ = 0;
};

}  // namespace cube::cache
