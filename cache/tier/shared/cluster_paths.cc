#include "cache/tier/shared/cluster_paths.h"

#include <algorithm>

#include "cache/base/path.h"
#include "cache/tier/cluster/cluster_key.h"

namespace cube::cache {

ClusterPaths::ClusterPaths(const base::Config& config) {
  for (const base::OriginSetting& named : config.cluster_origin)
    roots_.push_back({.prefix = named.prefix, .origin = ClusterKey::hash_of_origin(named.file)});
  for (const std::string& prefix : config.prefixes) {
    const bool is_named =
        std::ranges::any_of(roots_, [&](const Root& root) { return root.prefix == prefix; });
    if (!is_named)
      roots_.push_back({.prefix = prefix, .origin = ClusterKey::hash_of_origin(prefix)});
  }
  std::ranges::stable_sort(roots_, std::greater<>(),
                           [](const Root& root) { return root.prefix.size(); });
}

std::optional<ClusterPaths::Place> ClusterPaths::place_of(std::string_view path) const {
  for (const Root& root : roots_) {
    if (path == root.prefix) return Place{.origin = root.origin, .below = {}};
    if (base::is_below(path, root.prefix))
      return Place{.origin = root.origin, .below = path.substr(root.prefix.size() + 1)};
  }
  return std::nullopt;
}

}  // namespace cube::cache
