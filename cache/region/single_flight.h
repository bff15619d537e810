// One fetch for each path on a node: the first process to miss fetches, the others wait for it.
// When the fetcher dies, a waiter takes over.
//
// A turn is overdue after a waiter has waited one second; from then on no process waits for it. If
// its owner began and ended no fetch in that second, all of the owner's turns are overdue until it
// does, for it may be stopped. A fetch in parts is waited for as long as its parts come, and an
// open with O_NONBLOCK does not wait.
//
// A turn occupies one of four slots chosen by the path's hash. Different paths that share those
// slots do not wait for each other. If other paths hold all four slots, the path is fetched without
// a flight. At worst it is fetched twice. Thread safety: all of it. A thread that holds a flight
// must not call begin() again; FileCache prevents this.
#pragma once

#include "cache/region/region.h"

namespace cube::cache {

class SingleFlight {
 public:
  enum class Outcome {
    mine,     // fetch, then let the Ticket go
    waited,   // somebody else's fetch has ended: look again
    too_long  // do not wait any longer
  };
  // A turn as plain values.
  struct Hold {
    FlightSlot* slot = nullptr;
    std::uint64_t word = 0;
    std::atomic<std::uint64_t>* flights = nullptr;  // of its process; set where there is a slot
    // No-op where there is none, or where it has ended.
    void end();
    void end_copy() const {
      Hold copy = *this;
      copy.end();
    }
    // For a fetch in parts. Has somebody waited since the last progress?
    bool is_waited_for() const;
    void tell_progress() const;
  };
  // Holds the flight; its end wakes those who wait.
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
    // The bytes come as the program reads them, which may be never: who waits does so only as long
    // as they come. Another's from now on.
    Hold come_in_parts();

   private:
    friend class SingleFlight;
    Hold hold_;
  };

  // A waiter looks that often whether the fetcher still lives, and waits that long.
  struct Patience {
    std::uint64_t look_again_ns = 50'000'000, longest_ns = 1'000'000'000;
    // So long without a part of a fetch that comes in parts is too long.
    std::uint64_t between_parts_ns = 50'000'000;
  };

  explicit SingleFlight(Region& region) : SingleFlight(region, Patience()) {}
  SingleFlight(Region& region, const Patience& patience) : region_(&region), patience_(patience) {}
  // Ends a wait before the flight does.
  struct Wanted {
    bool (*is_here)(const void* of);
    const void* of;
  };
  // `waited_for_prefetch` says whether the other one was fetching before anybody had asked. Unless
  // it `may_wait`, any wait is too long. If what is `wanted` is here, the flight is not waited for
  // any longer.
  Outcome begin(std::uint64_t hash, Ticket& ticket, bool* waited_for_prefetch = nullptr,
                bool may_wait = true, const Wanted* wanted = nullptr);
  // The flight of a prefetch, which waits for nobody. Otherwise: who else is fetching it.
  enum class Prefetch { mine, demanded, prefetched };
  Prefetch begin_prefetch(std::uint64_t hash, Ticket& ticket);

 private:
  std::uint64_t word_of(std::uint64_t hash, bool is_prefetch) const;
  Hold take(FlightSlot* slot, std::uint64_t word) const;
  // Null: nobody can be the owner.
  ProcessSlot* owner_of(std::uint64_t word) const;
  // The holder of this flight has died, or is another program by now.
  bool is_owner_gone(std::uint64_t word) const;

  Region* region_;
  Patience patience_;
};

// For a process that is gone: its turns are over. Its waiters look again. (One that waits takes it
// over, too.)
void forget_flights_of(Region& region, std::uint32_t process);

}  // namespace cube::cache
