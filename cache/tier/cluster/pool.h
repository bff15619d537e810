// Decides which server a key belongs to, whether to ask that server, and how much to send it.
// Invariants: the server of a key does not depend on the order of the list; adding or removing a
// server moves only that server's share.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <string>

#include "cache/base/condition.h"

namespace cube::cache {

// Returns the index of the key's home server, by rendezvous hashing. Pure; async-signal-safe.
std::size_t home_of_key(std::span<const std::string> servers, std::uint64_t key_hash);

// A server that does not answer well rests for 1 s, then for 2, 4 ... 30 s. After each rest it gets
// one trial. Thread safety: one thread changes it; any thread may call is_open.
class CircuitBreaker {
 public:
  // True if the server may be asked at all. It stays true during a trial, where may_ask decides.
  bool is_open(std::uint64_t now_ns) const {
    return now_ns >= rest_until_ns_.load(std::memory_order_relaxed);
  }
  // Returns false if the server rests, or if its trial is under way.
  bool may_ask(std::uint64_t now_ns);
  static constexpr int k_most_late = 3;
  // Notes an answer that came in time or late. Returns true if the server should rest, because
  // `most_late` of the last 64 answers were late or the trial failed.
  bool note_answer(bool is_late, int most_late = k_most_late);
  // Starts a rest, longer each time and at least this long.
  void rest(std::uint64_t now_ns, std::uint64_t at_least_ns = 0);
  // The trial has ended without an answer and without a rest: the next request gets it.
  void give_up_trial() { is_trial_ = false; }
  std::uint64_t rest_until_ns() const { return rest_until_ns_.load(std::memory_order_relaxed); }
  bool is_trial() const { return is_trial_; }

 private:
  std::atomic<std::uint64_t> rest_until_ns_{0};
  std::uint64_t late_ = 0;  // a bit for each of the last answers
  unsigned rests_ = 0;      // without a good answer in between
  bool is_trial_ = false;
};

// Limits the bytes per second, with bursts of at most a fifth of a second. The processes of a node
// share the word. Thread safety: all of it.
class TokenBucket {
 public:
  static bool take(std::atomic<std::uint64_t>& free_ns, std::uint64_t now_ns, std::uint64_t bytes,
                   std::uint64_t per_second);
};

// If there are hardly any hits, only one request in 16 asks. After the first hit among those, all
// ask again for a while. Thread safety: all of it; the counts may be a little off.
class ColdPool {
 public:
  bool is_to_ask() {
    return !is_cold_.load(std::memory_order_relaxed) ||
           skips_.fetch_add(1, std::memory_order_relaxed) % k_one_in == 0;
  }
  void note(bool is_hit);

 private:
  static constexpr std::uint32_t k_looks = 256, k_least_hits = 13, k_one_in = 16,
                                 k_trial = 32;  // 5 %
  std::atomic<std::uint32_t> looks_{0}, hits_{0}, skips_{0}, needed_{k_trial};
  std::atomic<bool> is_cold_{false};
};

// Decides whether waiting for what another node fetches is worthwhile: yes if half of the last
// waits were; otherwise one in 8 is tried. Thread safety: all of it; the counts may be a little
// off.
class LeaseWaits {
 public:
  bool is_to_wait() {
    return std::popcount(outcomes_.load(std::memory_order_relaxed)) >= k_looks / 2 ||
           skips_.fetch_add(1, std::memory_order_relaxed) % k_one_in == 0;
  }
  void note(bool has_come) {
    const std::uint32_t before = outcomes_.load(std::memory_order_relaxed);
    outcomes_.store(before << 1 | (has_come ? 1 : 0), std::memory_order_relaxed);
  }

 private:
  static constexpr int k_looks = 32;
  static constexpr std::uint32_t k_one_in = 8;
  std::atomic<std::uint32_t> outcomes_{UINT32_MAX}, skips_{0};  // a bit for each of the last
};

// Tells how many threads have asked at once of late. While all of them wait, another request is
// unlikely. Thread safety: one thread.
class Askers {
 public:
  void note(unsigned awaited);
  bool are_all_waiting() const {
    return awaited_ != 0 && awaited_ >= std::max(most_, most_before_);
  }

 private:
  static constexpr unsigned k_looks = 1024;
  unsigned awaited_ = 0, most_ = 0, most_before_ = 0, looks_ = 0;
};

// Limits how many records may be fetched ahead at once: a MiB for each server, judged by the size
// of recent answers. More would delay what a program waits for, and would be no faster. Also limits
// how many answers are held, which may wait for room in the region: each has a request of the
// client's, and programs need some. Thread safety: all of it. It waits, so only threads of the
// library may use it.
class AheadWindow {
 public:
  static constexpr unsigned k_most_held = 24;

  explicit AheadWindow(std::size_t servers) : servers_(servers) {}
  // Waits until one more answer may be held.
  void hold();
  void let_go();
  // Waits until there is a place.
  void enter();
  // `bytes` is the size of the answer; 0 if there was none.
  void leave(std::uint64_t bytes);
  unsigned width() const { return width_.load(std::memory_order_relaxed); }

 private:
  const std::size_t servers_;
  base::Mutex mutex_;  // guards the next three
  unsigned inside_ = 0, held_ = 0;
  std::uint64_t average_ = 128 << 10;  // bytes
  base::Condition has_left_, is_let_go_;
  std::atomic<unsigned> width_{8};
};

}  // namespace cube::cache
