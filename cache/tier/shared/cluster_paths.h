// Maps each path to a name that is the same on all nodes. The name consists of the id of the origin
// (CUBESHIM_CLUSTER_ORIGIN, or the prefix itself) and the path below the prefix. Thread safety:
// immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/settings/config.h"
#include "cache/record/record.h"
#include "cache/tier/cluster/cluster_key.h"

namespace cube::cache {

class ClusterPaths {
 public:
  explicit ClusterPaths(const base::Config& config);
  struct Place {
    std::uint64_t origin = 0;  // ClusterKey::hash_of_origin
    std::string_view below;    // a part of the given path; empty for the prefix itself
  };
  std::optional<Place> place_of(std::string_view path) const;

 private:
  struct Root {
    std::string prefix;
    std::uint64_t origin;
  };
  std::vector<Root> roots_;  // longest prefix first
};

// Returns the key of the record at this place.
inline ClusterKey cluster_key(std::string_view space, const ClusterPaths::Place& place,
                              RecordKind kind) {
  return {space, place.origin, place.below,
          kind == RecordKind::directory ? ClusterKey::Of::listing : ClusterKey::Of::file};
}

}  // namespace cube::cache
