// Configured faults of the origin: errors, hangs and short reads, each with a probability.
//
// The n-th decision of a rule depends only on the seed and on n. So two runs that send the same
// operations see the same number of faults at the same places, independent of the threads' timing.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "ops.h"

namespace cube::lagfs {

struct FailRule {
  Op op;
  int error;
  double probability;
};

struct HangRule {
  Op op;
  double seconds;
  double probability;
};

// Returns the value of an errno name such as "EIO".
std::optional<int> find_errno(std::string_view name);

class Faults {
 public:
  Faults(const std::vector<FailRule>& fails, const std::vector<HangRule>& hangs, double short_read,
         std::uint64_t seed);

  // Returns the errno with which this operation must fail, or 0.
  int error_for(Op op);
  // Returns how many seconds this operation must hang, or 0.
  double hang_for(Op op);
  // Returns how many of `bytes` a read must return: all of them, or at least one but not all.
  std::size_t shorten(std::size_t bytes);

 private:
  // A stream of decisions: the n-th draw is a hash of (seed, n).
  struct Dice {
    std::uint64_t seed;
    double probability;
    std::atomic<std::uint64_t> draws{0};

    Dice(std::uint64_t seed_of_rule, double chance) : seed(seed_of_rule), probability(chance) {}
    std::optional<std::uint64_t> roll();  // random bits if the event happens
  };
  template <typename Rule>
  struct Armed {
    Rule rule;
    Dice dice;

    Armed(const Rule& from, std::uint64_t seed) : rule(from), dice(seed, from.probability) {}
  };

  // A deque, because a vector would move its atomics when it grows.
  std::deque<Armed<FailRule>> fails_;
  std::deque<Armed<HangRule>> hangs_;
  Dice short_read_;
};

}  // namespace cube::lagfs
