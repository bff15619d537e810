// One fetch for each path on a node: the first process to miss fetches, the others wait for it, a second at most.
// When the fetcher dies, a waiter takes over. Two paths that fall on one slot do not wait for each other; then both
// fetch without a turn, which costs a duplicate at worst.
// Thread safety: all of it. A thread that is fetching must not ask again (FileCache sees to that).
#pragma once

#include "cache/ram/region.h"

namespace cube::cache {

class SingleFlight {
 public:
  enum class Turn {
    mine,     // fetch, then let the Ticket go
    waited,   // somebody else's fetch has ended: look again
    too_long  // do not wait any longer
  };
  // Holds the turn; its end wakes those who wait.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    Ticket& operator=(Ticket&& other) noexcept {
      if (this != &other) {
        end();
        slot_ = std::exchange(other.slot_, nullptr);
      }
      return *this;
    }
    ~Ticket() { end(); }

   private:
    friend class SingleFlight;
    void end();
    FlightSlot* slot_ = nullptr;
  };

  explicit SingleFlight(Region& region) : region_(&region) {}
  Turn begin(std::uint64_t hash, Ticket& ticket);

 private:
  Region* region_;
};

}  // namespace cube::cache
