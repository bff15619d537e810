// Decides which of two engines serves an origin better. Batches of equal size run on the two
// engines alternately, and each pair of batches runs in the opposite order of the pair before it.
// So a change of conditions during the trial (the origin's load, its server's cache) affects both
// engines alike. The first pair is not counted: it is a warm-up, which starts threads and kernel
// workers.
//
// The ring wins a pair if it was faster by a margin, and loses it otherwise. After k_wins wins the
// origin is assigned to the ring; after k_losses losses it is assigned to the threads. So a single
// batch that was disturbed by other work on the machine decides nothing. If there is no real
// difference, threads win after a few batches. Threads are preferred because a hang then costs one
// thread and not a ring. Pure. Thread safety: one thread at a time.
#pragma once

#include <cstdint>

namespace cube::prefetch {

enum class Side : std::uint8_t { threads, uring };

class EngineTrial {
 public:
  bool is_decided() const { return wins_ == k_wins || losses_ == k_losses; }
  // The engine of the next batch. After the trial is decided, the engine of all batches.
  Side side() const;
  bool is_between_pairs() const { return !is_second_; }
  // Records the time of a batch that ran on side(). Batches do not overlap.
  void batch_took(std::uint64_t ns);
  // Discards the first batch of a pair if the second cannot be compared with it.
  void drop_pair() { is_second_ = false; }
  // Chooses threads, because the trial will have no result.
  void give_up() { losses_ = k_losses; }
  // How many of the counted pairs the ring has won, and lost.
  int wins() const { return wins_; }
  int losses() const { return losses_; }
  // How much faster the ring was in the counted pairs (geometric mean). Computed without libm,
  // which each program would have to load at its start.
  double ratio() const;

 private:
  static constexpr int k_warm_pairs = 1, k_wins = 8, k_losses = 2;
  static constexpr double k_margin = 1.1;
  // Ratios beyond these are outliers. Clamping keeps their product finite.
  static constexpr double k_least_ratio = 1e-6, k_most_ratio = 1e6;

  int pairs_done_ = 0, wins_ = 0, losses_ = 0;
  bool is_second_ = false;
  std::uint64_t first_ns_ = 0;
  double product_ = 1;  // of the ratios
};

}  // namespace cube::prefetch
