// The circuit breaker of a server. After failures it opens, so that the server rests: first for 1
// s, then for 2, 4, ... 30 s. After each rest, one request is sent as a trial. Thread safety: one
// thread changes it; any thread may call allows_requests.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class CircuitBreaker {
 public:
  // False while the server rests. During a trial this is true, and may_ask() must decide.
  bool allows_requests(std::uint64_t now_ns) const {
    return now_ns >= rest_until_ns_.load(std::memory_order_relaxed);
  }
  // Whether a request may be sent. Returns true to only one caller after each rest: its request is
  // the trial. False: the server rests, or its trial is in progress.
  bool may_ask(std::uint64_t now_ns);
  static constexpr int k_most_late = 3;
  // Notes an answer, which arrived in time or late. Returns true if the server should rest, because
  // `most_late` of the last 64 answers were late or the trial failed.
  bool note_answer(bool is_late, int most_late = k_most_late);
  // Starts a rest. Each rest is longer than the previous one, and at least this long.
  void rest(std::uint64_t now_ns, std::uint64_t at_least_ns = 0);
  // Called when a trial has ended without an answer and without a new rest. The next request
  // becomes the trial.
  void give_up_trial() { is_trial_ = false; }
  std::uint64_t rest_until_ns() const { return rest_until_ns_.load(std::memory_order_relaxed); }
  bool is_trial() const { return is_trial_; }

 private:
  std::atomic<std::uint64_t> rest_until_ns_{0};
  std::uint64_t late_ = 0;  // a bit for each of the last answers
  unsigned rests_ = 0;      // consecutive rests without a good answer in between
  bool is_trial_ = false;
};

}  // namespace cube::cache
