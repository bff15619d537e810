// The servers of a cluster in the leader's view, which the region holds. Thread safety: pure
// functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cache/region/region.h"

namespace cube::cli {

struct SeenServer {
  std::string name;  // as in CUBESHIM_CLUSTER
  std::string
      state;  // "answers", "rests for 4 s", "full", "left out", "silent for 12 s", "not known"
  std::uint64_t used = 0, capacity = 0, entries = 0;
};
// Empty if there is no cluster, or if no process of this node has been leader yet.
std::vector<SeenServer> servers_of(const cache::Region& region);
nlohmann::ordered_json json_of(const std::vector<SeenServer>& servers);

}  // namespace cube::cli
