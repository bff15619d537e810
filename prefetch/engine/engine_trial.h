// Which of two engines an origin likes: batches of equal size on each in turn, the second pair in
// the other order and so on, so that what drifts meanwhile (the origin's load, the cache of its
// server) hits both alike. The first pair warms up - threads are started, kernel workers too - and
// is not counted.
//
// Each further pair is won by the ring if it was faster by a margin, and lost otherwise. So many
// wins make it the ring's origin, so few losses the threads': one batch that something else on the
// machine has spoiled decides nothing, and where there is no difference to speak of there are
// threads, of which a hang costs one and not a ring, after a few batches. Pure; thread safety: one
// thread at a time.
#pragma once

#include <cstdint>

namespace cube::prefetch {

enum class Side : std::uint8_t { threads, uring };

class EngineTrial {
 public:
  bool is_decided() const { return wins_ == k_wins || losses_ == k_losses; }
  // The engine of the next batch; once decided, of all.
  Side side() const;
  bool is_between_pairs() const { return !is_second_; }
  // The batch ran on side(), one after the other.
  void batch_took(std::uint64_t ns);
  // The first of a pair is forgotten, for the second cannot be compared with it.
  void drop_pair() { is_second_ = false; }
  // Nothing will come of it: threads.
  void give_up() { losses_ = k_losses; }
  // The number of pairs that counted.
  int wins() const { return wins_; }
  int losses() const { return losses_; }
  // How much faster the ring was in them; the geometric mean. Without libm, which each program
  // would load at its start.
  double ratio() const;

 private:
  static constexpr int k_warm_pairs = 1, k_wins = 8, k_losses = 2;
  static constexpr double k_margin = 1.1;
  // More than these are an accident, and their product stays a number.
  static constexpr double k_least_ratio = 1e-6, k_most_ratio = 1e6;

  int pairs_done_ = 0, wins_ = 0, losses_ = 0;
  bool is_second_ = false;
  std::uint64_t first_ns_ = 0;
  double product_ = 1;  // of the ratios
};

}  // namespace cube::prefetch
