#include "cache/tier/cluster/home_server.h"

#include "cache/base/hash.h"

namespace cube::cache {

std::size_t home_of_key(std::span<const std::string> servers, std::uint64_t key_hash) {
  std::size_t home = 0;
  std::uint64_t best = 0;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const std::uint64_t score =
        XXH3_64bits_withSeed(servers[i].data(), servers[i].size(), key_hash);
    const bool is_better = score > best || (score == best && servers[i] < servers[home]);
    if (i != 0 && !is_better) continue;
    home = i;
    best = score;
  }
  return home;
}

}  // namespace cube::cache
