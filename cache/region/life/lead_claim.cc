#include "cache/region/life/lead_claim.h"

namespace cube::cache {
namespace {

// The fields of RegionHeader::lead_word: number of the lead:32 | mutex of the lead:8 | beat:24.
constexpr std::uint64_t k_beats = (1ULL << 24) - 1;

std::uint32_t lock_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 24 & 0xff) % k_lead_locks;
}

// The number of a lead is never 0, even after a wrap-around.
std::uint64_t next_lead_word(std::uint64_t word, std::uint32_t lock) {
  const std::uint32_t number = static_cast<std::uint32_t>(word >> 32) + 1;
  return std::uint64_t{number != 0 ? number : 1} << 32 | std::uint64_t{lock} << 24;
}

}  // namespace

bool LeadClaim::look(std::uint64_t now_ns) {
  const std::uint64_t word = region_->header().lead_word.load(std::memory_order_relaxed);
  // The lead is free if its leader has given it up, has died, or never existed.
  if (take(lock_of(word), word)) return true;
  if (word != seen_ || counted_ns_ == 0) {
    seen_ = word;
    counted_ns_ = now_ns;
    silent_ = 0;
    return false;
  }
  if (now_ns - counted_ns_ < k_between_looks_ns) return false;
  counted_ns_ = now_ns;
  if (++silent_ < k_silent_looks) return false;
  for (std::uint32_t lock = 0; lock < k_lead_locks; ++lock) {
    if (lock != lock_of(word) && take(lock, word)) return true;
  }
  return false;
}

bool LeadClaim::take(std::uint32_t lock, std::uint64_t word) {
  RegionHeader& header = region_->header();
  lock_.emplace(&header.lead_locks[lock], 0);
  const std::uint64_t mine = next_lead_word(word, lock);
  // Relaxed: this word does not order the stores of successive leaders. The previous leader may
  // still be working, so other means must order them.
  if (*lock_ && header.lead_word.compare_exchange_strong(word, mine, std::memory_order_relaxed)) {
    own_.store(mine, std::memory_order_relaxed);
    return true;
  }
  lock_.reset();
  return false;
}

bool LeadClaim::beat() {
  const std::uint64_t own = own_.load(std::memory_order_relaxed);
  std::atomic<std::uint64_t>& word = region_->header().lead_word;
  std::uint64_t now = word.load(std::memory_order_relaxed);
  while (own != 0 && (now & ~k_beats) == own) {
    if (word.compare_exchange_weak(now, own | ((now + 1) & k_beats), std::memory_order_relaxed))
      return true;
  }
  return false;
}

void LeadClaim::give_up() {
  own_.store(0, std::memory_order_relaxed);
  lock_.reset();
  counted_ns_ = 0;
}

}  // namespace cube::cache
