#include "cache/region/single_flight.h"

#include <algorithm>

#include "cache/base/clock.h"
#include "cache/base/process/went_out.h"
#include "cache/region/life/process_slots.h"

namespace cube::cache {
namespace {

// The values of FlightSlot::waiting. 0: no process waits. k_waited_for: a process waits. k_overdue:
// a process has waited in vain.
constexpr std::uint32_t k_waited_for = 1, k_overdue = 2;

// The parts of FlightSlot::word.
constexpr std::uint64_t k_tag_mask = ~0x3ffffffULL, k_in_parts = 1 << 25, k_is_prefetch = 1 << 24,
                        k_owner_mask = 0xffffff;

std::uint64_t tag_of(std::uint64_t hash) { return hash & k_tag_mask; }

void wake(FlightSlot& slot) {
  // seq_cst: either this load sees the waiter, or the waiter sees the new count and does not sleep.
  slot.wakeups.fetch_add(1, std::memory_order_seq_cst);
  if (slot.waiting.load(std::memory_order_seq_cst) == 0) return;
  slot.waiting.store(0, std::memory_order_relaxed);
  base::sys::futex_wake_all(&slot.wakeups);
}

// The number of candidate slots for the flight of a hash.
constexpr std::uint32_t k_ways = 4;

FlightSlot& slot_of(const Region& region, std::uint64_t hash, std::uint32_t way) {
  return region.flight_slot(static_cast<std::uint32_t>((hash + way) % k_flight_slots));
}

struct Claimed {
  // Null: flights of other paths hold all slots.
  FlightSlot* slot = nullptr;
  // The word of another process's flight; 0: the flight belongs to this process.
  std::uint64_t seen = 0;
};

// Returns the slot and the word of the flight for this hash. Ignores the slot `but`.
Claimed find_flight(const Region& region, std::uint64_t hash, const FlightSlot* but) {
  for (std::uint32_t way = 0; way < k_ways; ++way) {
    FlightSlot& slot = slot_of(region, hash, way);
    const std::uint64_t word = slot.word.load(std::memory_order_seq_cst);
    if (&slot != but && word != 0 && (word & k_tag_mask) == tag_of(hash)) return {&slot, word};
  }
  return {};
}

Claimed claim_flight(const Region& region, std::uint64_t hash, std::uint64_t mine) {
  constexpr int k_attempts = 16;
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    if (const Claimed other = find_flight(region, hash, nullptr); other.slot != nullptr)
      return other;
    FlightSlot* taken = nullptr;
    for (std::uint32_t way = 0; way < k_ways && taken == nullptr; ++way) {
      FlightSlot& slot = slot_of(region, hash, way);
      std::uint64_t seen = 0;
      if (slot.word.compare_exchange_strong(seen, mine, std::memory_order_seq_cst)) {
        taken = &slot;
      } else if ((seen & k_tag_mask) == tag_of(hash)) {
        // Another process was faster, so the caller waits for that flight. If this process took
        // another slot instead, both processes could take slots and give way again and again.
        return {&slot, seen};
      }
    }
    if (taken == nullptr) return {};
    // Another process may have taken another slot for the same hash. At least one of the two
    // processes sees the slot of the other and gives way.
    if (find_flight(region, hash, taken).slot == nullptr) return {taken, 0};
    taken->word.store(0, std::memory_order_seq_cst);
    wake(*taken);
  }
  return {};
}

// How many flights the owner of a flight has begun or ended so far.
class Progress {
 public:
  Progress() = default;
  explicit Progress(ProcessSlot* owner)
      : owner_(owner),
        flights_(owner != nullptr ? owner->flights.load(std::memory_order_relaxed) : 0) {}
  bool is_stuck() const {
    return owner_ != nullptr && owner_->stuck_at.load(std::memory_order_relaxed) == flights_ + 1;
  }
  // If the owner has neither begun nor ended a flight since then, it may have been stopped
  // (SIGSTOP). So all its flights count as stuck.
  void note_stuck_since(const Progress& before) const {
    if (owner_ != nullptr && owner_ == before.owner_ && flights_ == before.flights_)
      owner_->stuck_at.store(flights_ + 1, std::memory_order_relaxed);
  }

 private:
  ProcessSlot* owner_ = nullptr;
  std::uint64_t flights_ = 0;
};

}  // namespace

void SingleFlight::Hold::end() {
  const bool is_mine = is_of_this_process();
  FlightSlot* const own = std::exchange(slot, nullptr);
  // Release: waiters that wake see the published record. Pairs with the acquire in begin. The swap
  // fails if another process has taken over this flight, which then continues.
  if (!is_mine || !own->word.compare_exchange_strong(word, 0, std::memory_order_acq_rel)) return;
  flights->fetch_add(1, std::memory_order_relaxed);
  wake(*own);
}

bool SingleFlight::Hold::is_waited_for() const {
  return is_of_this_process() && slot->waiting.load(std::memory_order_relaxed) == k_waited_for &&
         slot->word.load(std::memory_order_relaxed) == word;
}

void SingleFlight::Hold::tell_progress() const {
  if (is_waited_for()) wake(*slot);
}

SingleFlight::Hold SingleFlight::Ticket::in_parts() const {
  Hold hold = hold_;
  if (hold.slot != nullptr) hold.word |= k_in_parts;
  return hold;
}

SingleFlight::Hold SingleFlight::Ticket::come_in_parts() {
  const Hold hold = in_parts();
  std::uint64_t before = std::exchange(hold_, {}).word;
  if (!hold.is_of_this_process()) return {};
  // Fails if another process has ended the flight.
  if (!hold.slot->word.compare_exchange_strong(before, hold.word, std::memory_order_seq_cst))
    return {};
  // Wakes the processes that already wait, because from now on a different limit applies to their
  // wait.
  wake(*hold.slot);
  return hold;
}

void forget_flights_of(Region& region, std::uint32_t process) {
  const std::uint64_t owner = process_word(region, process);
  for (std::uint32_t i = 0; i < k_flight_slots; ++i) {
    FlightSlot& slot = region.flight_slot(i);
    std::uint64_t word = slot.word.load(std::memory_order_relaxed);
    if ((word & k_owner_mask) != owner) continue;
    if (slot.word.compare_exchange_strong(word, 0, std::memory_order_acq_rel)) wake(slot);
  }
}

std::uint64_t SingleFlight::word_of(std::uint64_t hash, bool is_prefetch) const {
  return tag_of(hash) | (is_prefetch ? k_is_prefetch : 0) |
         process_word(*region_, region_->own_slot());
}

SingleFlight::Hold SingleFlight::take(FlightSlot* slot, std::uint64_t word) const {
  std::atomic<std::uint64_t>& flights = region_->own_process().flights;
  flights.fetch_add(1, std::memory_order_relaxed);
  return {slot, word, &flights, own_epoch.load(std::memory_order_relaxed)};
}

ProcessSlot* SingleFlight::owner_of(std::uint64_t word) const {
  const std::uint32_t owner = slot_of_word(static_cast<std::uint32_t>(word));
  return owner < region_->layout().process_slots ? &region_->process_slot(owner) : nullptr;
}

bool SingleFlight::is_owner_gone(std::uint64_t word) const {
  return !process_of_word_is_alive(*region_, static_cast<std::uint32_t>(word & k_owner_mask));
}

SingleFlight::Prefetch SingleFlight::begin_prefetch(std::uint64_t hash, Ticket& ticket) {
  const std::uint64_t mine = word_of(hash, true);
  Claimed flight = claim_flight(*region_, hash, mine);
  // Other paths hold all slots, so the caller fetches without a flight.
  if (flight.slot == nullptr) return Prefetch::mine;
  // Takes over the flight of a killed leader. Otherwise each open by a program would have to
  // discover for its own file that the leader is dead.
  if (flight.seen != 0 &&
      !(is_owner_gone(flight.seen) &&
        flight.slot->word.compare_exchange_strong(flight.seen, mine, std::memory_order_acq_rel))) {
    return (flight.seen & k_is_prefetch) != 0 ? Prefetch::prefetched : Prefetch::demanded;
  }
  ticket.hold_ = take(flight.slot, mine);
  return Prefetch::mine;
}

bool SingleFlight::is_under_way(std::uint64_t hash) const {
  return find_flight(*region_, hash, nullptr).slot != nullptr;
}

bool SingleFlight::wait_for_end(std::uint64_t hash, std::uint64_t until_ns) {
  std::uint64_t deadline = 0;
  Progress before;
  for (;;) {
    const Claimed flight = find_flight(*region_, hash, nullptr);
    if (flight.slot == nullptr) return true;
    FlightSlot& slot = *flight.slot;
    const Progress progress(owner_of(flight.seen));
    if (progress.is_stuck() || slot.waiting.load(std::memory_order_relaxed) == k_overdue)
      return false;
    const std::uint64_t now = base::monotonic_ns();
    if (now >= until_ns) return false;
    if (deadline == 0) {
      deadline = now + patience_.longest_ns;
      before = progress;
    }
    if (now >= deadline) {
      progress.note_stuck_since(before);
      slot.waiting.store(k_overdue, std::memory_order_seq_cst);
      return false;
    }
    const std::uint32_t wakeups = slot.wakeups.load(std::memory_order_seq_cst);
    slot.waiting.store(k_waited_for, std::memory_order_seq_cst);
    if (slot.word.load(std::memory_order_seq_cst) != flight.seen) continue;
    base::note_way_out(base::Way::waited);
    const std::uint64_t slice_ns = std::min(patience_.look_again_ns, until_ns - now);
    if (base::sys::futex_wait(&slot.wakeups, wakeups, slice_ns) == -ETIMEDOUT &&
        is_owner_gone(flight.seen))
      return true;
  }
}

SingleFlight::Outcome SingleFlight::begin(std::uint64_t hash, Ticket& ticket,
                                          bool* waited_for_prefetch, bool may_wait,
                                          const Wanted* wanted) {
  const std::uint64_t mine = word_of(hash, false);
  std::uint64_t deadline = 0;
  Progress before;
  while (true) {
    Claimed flight = claim_flight(*region_, hash, mine);
    if (flight.seen == 0) {
      ticket.hold_ = take(flight.slot, mine);
      return deadline == 0 ? Outcome::mine : Outcome::waited;
    }
    if (wanted != nullptr && wanted->is_here(wanted->of)) return Outcome::waited;
    FlightSlot& slot = *flight.slot;
    const Progress progress(owner_of(flight.seen));
    const bool is_overdue =
        progress.is_stuck() || slot.waiting.load(std::memory_order_relaxed) == k_overdue;
    if (waited_for_prefetch != nullptr && (flight.seen & k_is_prefetch) != 0)
      *waited_for_prefetch = true;
    const bool is_in_parts = (flight.seen & k_in_parts) != 0;
    // If this process itself owns the flight, the calling thread may be the thread that must read
    // the next part.
    const bool is_own = (flight.seen & k_owner_mask) == (mine & k_owner_mask);
    if (!may_wait || (is_in_parts && is_own)) return Outcome::too_long;
    const std::uint64_t now = base::monotonic_ns();
    if (deadline == 0) {
      deadline = now + patience_.longest_ns;
      before = progress;
    }
    if (now >= deadline) {
      if (!is_in_parts) progress.note_stuck_since(before);
      // The fetch hangs, or its thread has left it (siglongjmp). The mark keeps further processes
      // from waiting for the fetch.
      slot.waiting.store(k_overdue, std::memory_order_seq_cst);
      return Outcome::too_long;
    }
    if (!is_overdue) {
      const std::uint32_t wakeups = slot.wakeups.load(std::memory_order_seq_cst);
      slot.waiting.store(k_waited_for, std::memory_order_seq_cst);
      // If the word has changed, the flight has ended, perhaps before `wakeups` was loaded. A wait
      // would then miss the end.
      if (slot.word.load(std::memory_order_seq_cst) != flight.seen) continue;
      const std::uint64_t slice_ns =
          is_in_parts ? patience_.between_parts_ns : patience_.look_again_ns;
      base::note_way_out(base::Way::waited);
      if (base::sys::futex_wait(&slot.wakeups, wakeups, slice_ns) != -ETIMEDOUT) continue;
    }
    if (!is_owner_gone(flight.seen)) {
      if (is_in_parts) slot.waiting.store(k_overdue, std::memory_order_seq_cst);
      if (is_overdue || is_in_parts) return Outcome::too_long;
      continue;
    }
    if (slot.word.compare_exchange_strong(flight.seen, mine, std::memory_order_acq_rel)) {
      slot.waiting.store(k_waited_for, std::memory_order_relaxed);
      ticket.hold_ = take(&slot, mine);
      return Outcome::mine;
    }
  }
}

}  // namespace cube::cache
