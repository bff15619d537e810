// All places to which a path can lead for a reader that knows each name on the path as it was at
// some moment of a period. The caches of the kernel and of the library hold each name separately,
// so these moments can differ. Thread-safe while the world does not change.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/preload/freshness/mutator/world.h"

namespace cube::mutator {

struct Since {
  std::int64_t present = 0;  // uses names as they were at this moment or later
  std::int64_t absent = 0;   // negative entries likewise
  std::int64_t until = 0;
};

struct Place {
  int error = 0;  // ENOENT, ENOTDIR, ELOOP; otherwise the rest is set
  Object* object = nullptr;
  std::string real{};  // the path without links, "." for the root
  Object* directory = nullptr;
  std::string name{};  // in it
};

// `path` is relative to the root of the world.
std::vector<Place> places_of(World& world, const std::string& path, bool follows,
                             const Since& since);

// Returns every path by which the tree can be read now, without following links.
std::vector<std::string> all_paths(World& world);

}  // namespace cube::mutator
