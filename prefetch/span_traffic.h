// When a queue of files of packs is left to the workers that are at packs already. What is submitted comes one by one, in answer
// to what has ended: a worker woken for each would read each alone, while one that is busy a moment longer finds many that lie
// together. So a few read at the same time, whatever the depth, as long as what is in the queue lies in the order of the pack;
// where it does not, there are as many at work as the depth allows.
// Invariant: what is left to others is found by them, for they look into the queue after they have left; for the case that all
// of them hang in the kernel, somebody looks now and then (has_stopped).
// Thread safety: all of it.
#pragma once

#include <algorithm>
#include <atomic>

#include "prefetch/fetch_queue.h"
#include "prefetch/packed_span.h"

namespace cube::prefetch {

class SpanTraffic {
 public:
  // So many keep an origin busy, also one that is far away, and one whose kernel asks for 128 KiB at a time, one after the other,
  // whatever is read at once: with four of them such a mount of 5 ms gave a third of what a read for each file gives.
  static constexpr unsigned k_spans = 16;

  // Most files for one worker: not what several could read at the same time.
  static unsigned fair_share(const FetchQueue& queue, unsigned depth) { return queue.unended() / std::min(depth, k_spans); }
  bool is_enough(FetchQueue& queue, unsigned depth) const {
    return is_in_order_ && at_packs_ >= std::min(depth, k_spans) && queue.size() < fair_share(queue, depth);
  }

  // A worker is at files of a pack.
  void enter() {
    ++at_packs_;
    ++entered_;
  }
  void leave() { --at_packs_; }
  // What the next in the queue was to the one before it.
  void saw(PackedSpan::Add next) { is_in_order_ = next != PackedSpan::Add::elsewhere; }

  // Nobody has entered since the last call: the queue is for everybody.
  bool has_stopped() {
    const unsigned entered = entered_;
    if (seen_.exchange(entered) != entered) return false;
    is_in_order_ = false;
    return true;
  }

 private:
  std::atomic<unsigned> at_packs_{0}, entered_{0}, seen_{0};
  std::atomic<bool> is_in_order_{false};
};

}  // namespace cube::prefetch
