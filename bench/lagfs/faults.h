// Set misbehaviour of the origin: errors, hangs and short reads, each with a probability.
//
// The n-th decision of a rule depends on the seed and n alone, so a run that sends the same
// operations sees the same number of faults at the same places, whatever the threads do.
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

// The number of an errno name such as "EIO".
std::optional<int> find_errno(std::string_view name);

class Faults {
 public:
  Faults(const std::vector<FailRule>& fails, const std::vector<HangRule>& hangs, double short_read,
         std::uint64_t seed);

  // The errno that this operation shall fail with, or 0.
  int error_for(Op op);
  // Seconds that this operation shall hang, or 0.
  double hang_for(Op op);
  // How many of `bytes` a read shall answer: all, or at least one and not all.
  std::size_t shorten(std::size_t bytes);

 private:
  // A stream of decisions: the n-th draw is a hash of (seed, n).
  struct Dice {
    std::uint64_t seed;
    double probability;
    std::atomic<std::uint64_t> draws{0};

    Dice(std::uint64_t seed_of_rule, double chance) : seed(seed_of_rule), probability(chance) {}
    std::optional<std::uint64_t> roll();  // random bits when the event happens
  };
  template <typename Rule>
  struct Armed {
    Rule rule;
    Dice dice;

    Armed(const Rule& from, std::uint64_t seed) : rule(from), dice(seed, from.probability) {}
  };

  // deque: an atomic cannot move when a vector grows.
  std::deque<Armed<FailRule>> fails_;
  std::deque<Armed<HangRule>> hangs_;
  Dice short_read_;
};

}  // namespace cube::lagfs
