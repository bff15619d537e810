// Allows one fetch for each path on a node: the first process that misses fetches, and the others
// wait. If the fetching process dies, a waiting process takes over.
//
// A flight is overdue when a process has waited for it for one second. From then on, no process
// waits for it. If the owner of the flight has neither begun nor ended a fetch in that second, the
// owner may have been stopped (SIGSTOP). All flights of such an owner are overdue until the owner
// begins or ends a flight. If a file is fetched in parts, a process waits at most 50 ms for each
// part, and at most one second for all of them. An open with O_NONBLOCK does not wait.
//
// A flight occupies one of four slots chosen by the path's hash. Paths that share these slots do
// not wait for each other. If other paths hold all four slots, the path is fetched without a
// flight, so several processes may fetch it. Thread-safe. A thread that holds a flight must not
// call begin(), because two threads could then wait for each other; FetchScope::is_open() shows
// whether it may. One exception: the holder of a reader's flight (LargeFile::begin_reading) may
// begin the flight of a block.
#pragma once

#include "cache/region/region.h"

namespace cube::cache {

class SingleFlight {
 public:
  enum class Outcome {
    // The caller must fetch, and then release the Ticket.
    mine,
    // The fetch of another process has ended. The caller must search for the record again.
    waited,
    // The flight is overdue, or the caller must not wait. The caller must fetch without a flight.
    too_long
  };
  // A flight as plain values.
  struct Hold {
    FlightSlot* slot = nullptr;
    std::uint64_t word = 0;
    // ProcessSlot::flights of the owner. Not null if `slot` is not null.
    std::atomic<std::uint64_t>* flights = nullptr;
    // The value of own_epoch when the flight was taken.
    std::uint32_t epoch = 0;
    // False: there is no flight, or it was taken before a fork and so belongs to the parent.
    bool is_of_this_process() const {
      return slot != nullptr && epoch == own_epoch.load(std::memory_order_relaxed);
    }
    // Ends the flight. Does nothing if there is no flight, if it has already ended, or if it
    // belongs to the parent.
    void end();
    void end_copy() const {
      Hold copy = *this;
      copy.end();
    }
    // For a fetch in parts: whether a process has begun to wait since the last progress.
    bool is_waited_for() const;
    // False: the flight has ended, perhaps because its thread left the fetch by a jump.
    bool is_held() const {
      return is_of_this_process() && slot->word.load(std::memory_order_relaxed) == word;
    }
    void tell_progress() const;
  };
  // Holds the flight. The end of the flight wakes all processes that wait for it.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept : hold_(std::exchange(other.hold_, {})) {}
    Ticket& operator=(Ticket&& other) noexcept {
      if (this != &other) {
        hold_.end();
        hold_ = std::exchange(other.hold_, {});
      }
      return *this;
    }
    ~Ticket() { hold_.end(); }
    Hold hold() const { return hold_; }
    // The flight that come_in_parts() will return.
    Hold in_parts() const;
    // Declares that the bytes will arrive in parts, while the program reads them. The program may
    // stop reading, so other processes wait only as long as bytes arrive. The caller owns the
    // returned flight, which the ticket no longer holds.
    Hold come_in_parts();

   private:
    friend class SingleFlight;
    Hold hold_;
  };

  // How often a waiting process checks whether the owner of the flight is alive, and how long the
  // process waits at most.
  struct Patience {
    std::uint64_t look_again_ns = 50'000'000, longest_ns = 1'000'000'000;
    // The longest wait for the next part of a fetch in parts.
    std::uint64_t between_parts_ns = 50'000'000;
  };

  explicit SingleFlight(Region& region) : SingleFlight(region, Patience()) {}
  SingleFlight(Region& region, const Patience& patience) : region_(&region), patience_(patience) {}
  // A condition that ends a wait earlier than the flight.
  struct Wanted {
    bool (*is_here)(const void* of);
    const void* of;
  };
  // Begins a flight, or waits for the flight of another process. `waited_for_prefetch` is set if
  // that flight was a prefetch. If `may_wait` is false, begin() does not wait. The wait also ends
  // as soon as wanted->is_here() returns true.
  Outcome begin(std::uint64_t hash, Ticket& ticket, bool* waited_for_prefetch = nullptr,
                bool may_wait = true, const Wanted* wanted = nullptr);
  // Begins the flight of a prefetch. Never waits. If another fetch has the flight, returns the kind
  // of that fetch.
  enum class Prefetch { mine, demanded, prefetched };
  Prefetch begin_prefetch(std::uint64_t hash, Ticket& ticket);
  bool is_under_way(std::uint64_t hash) const;
  // Waits for the end of the flight for this hash, if there is one, but begins no flight
  // afterwards. Waits no longer than Patience::longest_ns, and not beyond `until_ns`
  // (base::monotonic_ns). Returns whether the flight has ended or its owner has died.
  bool wait_for_end(std::uint64_t hash, std::uint64_t until_ns = UINT64_MAX);
  // For a forked child: forgets all flights that were taken before the fork, because they belong to
  // the parent. There can be such flights, because a signal handler that forked can return into a
  // fetch.
  static void forget_flights() { own_epoch.fetch_add(1, std::memory_order_relaxed); }

 private:
  // Differs between a forked child and its parent, so that the child leaves the parent's flights
  // alone.
  static inline constinit std::atomic<std::uint32_t> own_epoch{0};

  std::uint64_t word_of(std::uint64_t hash, bool is_prefetch) const;
  Hold take(FlightSlot* slot, std::uint64_t word) const;
  // The slot of the process that owns the flight with this word. Null: the word names no possible
  // owner.
  ProcessSlot* owner_of(std::uint64_t word) const;
  // Whether the process that held this flight has died or has executed another program.
  bool is_owner_gone(std::uint64_t word) const;

  Region* region_;
  Patience patience_;
};

// Ends the flights of a process that has ended, and wakes the processes that wait for them. (A
// waiting process can also take over a flight itself.)
void forget_flights_of(Region& region, std::uint32_t process);

}  // namespace cube::cache
