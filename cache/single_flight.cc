#include "cache/single_flight.h"

#include "cache/base/clock.h"
#include "cache/ram/process_slots.h"

namespace cube::cache {
namespace {

constexpr std::uint64_t k_longest_wait_ns = 1'000'000'000;
constexpr long k_look_again_ns = 50'000'000;  // whether the fetcher still lives

}  // namespace

void SingleFlight::Ticket::end() {
  if (slot_ == nullptr) return;
  // Release: what was published is seen by those who wake; pairs with the acquire in begin.
  slot_->word.store(0, std::memory_order_release);
  // seq_cst: either we see who waits, or he sees the new count and does not sleep.
  slot_->wakeups.fetch_add(1, std::memory_order_seq_cst);
  if (slot_->waiting.load(std::memory_order_seq_cst) != 0) {
    slot_->waiting.store(0, std::memory_order_relaxed);
    base::sys::futex_wake_all(&slot_->wakeups);
  }
  slot_ = nullptr;
}

SingleFlight::Turn SingleFlight::begin(std::uint64_t hash, Ticket& ticket) {
  FlightSlot& slot = region_->flight_slot(static_cast<std::uint32_t>(hash % k_flight_slots));
  const std::uint64_t tag = (hash >> 24) << 24;
  // The generation, for a slot may be another's by the time we look; plus one, so that a word is never 0.
  const auto owner_bits = [&](std::uint32_t process) {
    const std::uint64_t generation = region_->process_slot(process).generation.load(std::memory_order_relaxed);
    return (generation & 0xfff) << 12 | (process + 1);
  };
  const std::uint64_t mine = tag | owner_bits(region_->own_slot());
  std::uint64_t deadline = 0;
  while (true) {
    const std::uint32_t wakeups = slot.wakeups.load(std::memory_order_acquire);
    std::uint64_t seen = 0;
    if (slot.word.compare_exchange_strong(seen, mine, std::memory_order_acq_rel)) {
      ticket.slot_ = &slot;
      return deadline == 0 ? Turn::mine : Turn::waited;
    }
    if ((seen & ~0xffffffULL) != tag) return deadline == 0 ? Turn::mine : Turn::waited;
    const auto owner = static_cast<std::uint32_t>(seen & 0xfff) - 1;
    const std::uint64_t now = base::monotonic_ns();
    if (deadline == 0) deadline = now + k_longest_wait_ns;
    if (now >= deadline) return Turn::too_long;
    slot.waiting.store(1, std::memory_order_seq_cst);
    const timespec slice{0, k_look_again_ns};
    if (base::sys::futex_wait(&slot.wakeups, wakeups, &slice) != -ETIMEDOUT) continue;
    if (owner < k_process_slots && owner_bits(owner) == (seen & 0xffffffULL) && process_is_alive(*region_, owner)) continue;
    if (slot.word.compare_exchange_strong(seen, mine, std::memory_order_acq_rel)) {
      ticket.slot_ = &slot;
      return Turn::mine;
    }
  }
}

}  // namespace cube::cache
