// Makes random changes of the tree, one at a time, like other nodes that change a data set.
#pragma once

#include <random>
#include <string>

#include "tests/preload/freshness/mutator/world.h"

namespace cube::mutator {

using Random = std::mt19937_64;

inline std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }
template <typename List>
const auto& one_of(Random& random, const List& list) {
  return list[below(random, std::size(list))];
}

// A file of at most this size is cached as a whole. Larger files are cached in blocks.
inline constexpr std::uint64_t k_most_whole = 1536 << 10;

class Mutations {
 public:
  Mutations(World& world, Random& random) : world_(world), random_(random) {}

  // Makes the initial tree, with times so old that nothing in it counts as new.
  void make_tree();
  struct Change {
    std::string path, what;
  };
  // `near`: a path that was read recently, or empty. If possible, this path is changed.
  Change change(const std::string& near);

 private:
  struct Spot {
    Object* directory = nullptr;
    std::string name;
    Object* object = nullptr;
    std::string path;
  };
  std::vector<Spot> spots();
  Spot pick(const std::string& near, bool (*fits)(const Spot&));
  Runs new_runs(std::uint64_t words) {
    return {{world_.new_tag(), static_cast<std::uint32_t>(words)}};
  }
  std::uint64_t words_like(const Spot& spot);

  std::string change_file(const Spot& spot);
  std::string replace_file(const Spot& spot);
  Change change_names(const Spot& spot);
  Change switch_link();
  Change replace_directory();

  World& world_;
  Random& random_;
};

}  // namespace cube::mutator
