#include "cache/single_flight.h"

#include "cache/base/clock.h"
#include "cache/ram/process_slots.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_longest_wait_ns = 1'000'000'000;
constexpr long k_look_again_ns = 50'000'000;  // whether the fetcher still lives

// The parts of FlightSlot::word.
constexpr std::uint64_t k_tag_mask = ~0x1ffffffULL, k_is_prefetch = 1 << 24, k_owner_mask = 0xffffff;

std::uint64_t tag_of(std::uint64_t hash) { return hash & k_tag_mask; }

// The generation, for a slot may be another's by the time we look; plus one, so that a word is never 0.
std::uint64_t owner_bits(const Region& region, std::uint32_t process) {
  const std::uint64_t generation = region.process_slot(process).generation.load(std::memory_order_relaxed);
  return (generation & 0xfff) << 12 | (process + 1);
}

void wake(FlightSlot& slot) {
  // seq_cst: either we see who waits, or he sees the new count and does not sleep.
  slot.wakeups.fetch_add(1, std::memory_order_seq_cst);
  if (slot.waiting.load(std::memory_order_seq_cst) == 0) return;
  slot.waiting.store(0, std::memory_order_relaxed);
  base::sys::futex_wake_all(&slot.wakeups);
}

}  // namespace

void SingleFlight::Ticket::end() {
  if (slot_ == nullptr) return;
  // Release: what was published is seen by those who wake; pairs with the acquire in begin.
  slot_->word.store(0, std::memory_order_release);
  wake(*slot_);
  slot_ = nullptr;
}

void forget_flights_of(Region& region, std::uint32_t process) {
  const std::uint64_t owner = owner_bits(region, process);
  for (std::uint32_t i = 0; i < k_flight_slots; ++i) {
    FlightSlot& slot = region.flight_slot(i);
    std::uint64_t word = slot.word.load(std::memory_order_relaxed);
    if ((word & k_owner_mask) != owner) continue;
    if (slot.word.compare_exchange_strong(word, 0, std::memory_order_acq_rel)) wake(slot);
  }
}

std::uint64_t SingleFlight::word_of(std::uint64_t hash, bool is_prefetch) const {
  return tag_of(hash) | (is_prefetch ? k_is_prefetch : 0) | owner_bits(*region_, region_->own_slot());
}

bool SingleFlight::is_owner_gone(std::uint64_t word) const {
  const auto owner = static_cast<std::uint32_t>(word & 0xfff) - 1;
  if (owner >= region_->layout().process_slots || owner_bits(*region_, owner) != (word & k_owner_mask)) return true;
  return !process_is_alive(*region_, owner);
}

SingleFlight::Prefetch SingleFlight::begin_prefetch(std::uint64_t hash, Ticket& ticket) {
  FlightSlot& slot = region_->flight_slot(static_cast<std::uint32_t>(hash % k_flight_slots));
  const std::uint64_t mine = word_of(hash, true);
  std::uint64_t seen = 0;
  // What a killed leader was fetching is taken over: else demand would have to find out that it is dead, file by file.
  if (slot.word.compare_exchange_strong(seen, mine, std::memory_order_acq_rel) ||
      ((seen & k_tag_mask) == tag_of(hash) && is_owner_gone(seen) &&
       slot.word.compare_exchange_strong(seen, mine, std::memory_order_acq_rel))) {
    ticket.slot_ = &slot;
    return Prefetch::mine;
  }
  // Of another path: without a turn then.
  if ((seen & k_tag_mask) != tag_of(hash)) return Prefetch::mine;
  return (seen & k_is_prefetch) != 0 ? Prefetch::prefetched : Prefetch::demanded;
}

SingleFlight::Turn SingleFlight::begin(std::uint64_t hash, Ticket& ticket, bool* waited_for_prefetch, bool may_wait) {
  FlightSlot& slot = region_->flight_slot(static_cast<std::uint32_t>(hash % k_flight_slots));
  const std::uint64_t mine = word_of(hash, false);
  std::uint64_t deadline = 0;
  while (true) {
    const std::uint32_t wakeups = slot.wakeups.load(std::memory_order_acquire);
    std::uint64_t seen = 0;
    if (slot.word.compare_exchange_strong(seen, mine, std::memory_order_acq_rel)) {
      ticket.slot_ = &slot;
      return deadline == 0 ? Turn::mine : Turn::waited;
    }
    if ((seen & k_tag_mask) != tag_of(hash)) return deadline == 0 ? Turn::mine : Turn::waited;
    if (waited_for_prefetch != nullptr && (seen & k_is_prefetch) != 0) *waited_for_prefetch = true;
    if (!may_wait) return Turn::too_long;
    const std::uint64_t now = base::monotonic_ns();
    if (deadline == 0) deadline = now + k_longest_wait_ns;
    if (now >= deadline) return Turn::too_long;
    slot.waiting.store(1, std::memory_order_seq_cst);
    const timespec slice{0, k_look_again_ns};
    if (base::sys::futex_wait(&slot.wakeups, wakeups, &slice) != -ETIMEDOUT) continue;
    if (!is_owner_gone(seen)) continue;
    if (slot.word.compare_exchange_strong(seen, mine, std::memory_order_acq_rel)) {
      ticket.slot_ = &slot;
      return Turn::mine;
    }
  }
}

}  // namespace cube::cache
