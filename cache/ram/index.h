// From a 64-bit hash to records: buckets of one cache line, two candidate buckets for each hash.
// A slot is one word - tag:16 | generation:12 | segment:18 | offset:18, in units of 64 bytes - and 0 is empty. It is
// published by one compare-and-swap, so a half-made entry is never found. A slot whose generation is no longer that of
// its segment is dead and may be taken over; nobody sweeps.
// Thread safety: all of it, between threads and processes. Async-signal-safe, no allocation.
#pragma once

#include <cstdint>

#include "cache/base/result.h"
#include "cache/ram/region.h"

namespace cube::cache {

struct RecordPlace {
  std::uint32_t segment = 0;
  std::uint32_t generation = 0;  // all 32 bits of the segment's; a slot keeps the low 12
  std::uint64_t offset = 0;      // bytes from the segment's start, a multiple of 64
};

class Index {
 public:
  static constexpr std::uint32_t k_generation_mask = 0xfff;

  explicit Index(Region& region) : region_(&region) {}

  // Calls visit(place) for each entry that may be of this hash until it returns true; `generation` has 12 bits here.
  template <typename Visit>
  bool visit(std::uint64_t hash, Visit&& visit) const {
    const std::uint64_t tag = tag_of(hash);
    const std::uint32_t second = second_bucket(hash);
    __builtin_prefetch(&region_->bucket(second));
    for (const std::uint32_t b : {first_bucket(hash), second}) {
      const IndexBucket& bucket = region_->bucket(b);
      for (const auto& slot : bucket.slots) {
        // Pairs with the release in insert: a record is whole before its slot is seen.
        const std::uint64_t word = slot.load(std::memory_order_acquire);
        if ((word >> 48) == tag && word != 0 && visit(place_of(word))) return true;
      }
    }
    return false;
  }

  // ENOSPC: both buckets are full of living entries. `may_replace(place)` says whether an entry with the same tag is
  // one that this one makes useless.
  template <typename MayReplace>
  base::Result<void> insert(std::uint64_t hash, const RecordPlace& place, MayReplace&& may_replace) {
    const std::uint64_t word = word_of(hash, place);
    for (int attempt = 0; attempt < 16; ++attempt) {
      std::uint64_t expected = 0;
      auto* const slot = slot_for(hash, may_replace, expected);
      if (slot == nullptr) return base::fail(ENOSPC);
      // Pairs with the acquire in visit. seq_cst, for the fetcher then looks for writers (WriterGuard).
      if (slot->compare_exchange_strong(expected, word, std::memory_order_seq_cst)) return {};
    }
    return base::fail(ENOSPC);
  }

  // Every living entry of the region: visit(place).
  template <typename Visit>
  void visit_all(Visit&& visit) const {
    for (std::uint32_t b = 0; b < region_->layout().bucket_count; ++b) {
      for (const auto& slot : region_->bucket(b).slots) {
        const std::uint64_t word = slot.load(std::memory_order_acquire);
        if (word != 0 && is_living(word)) visit(place_of(word));
      }
    }
  }

 private:
  using Slot = std::atomic<std::uint64_t>;

  // Never 0, so that no word is.
  static std::uint64_t tag_of(std::uint64_t hash) { return (hash & 0xffff) != 0 ? hash & 0xffff : 1; }
  static std::uint32_t reduce(std::uint32_t part, std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{part} * n) >> 32);
  }
  std::uint32_t first_bucket(std::uint64_t hash) const {
    return reduce(static_cast<std::uint32_t>(hash >> 32), region_->layout().bucket_count);
  }
  std::uint32_t second_bucket(std::uint64_t hash) const {
    return reduce(static_cast<std::uint32_t>((hash * 0x9e3779b97f4a7c15ULL) >> 32), region_->layout().bucket_count);
  }
  static RecordPlace place_of(std::uint64_t word) {
    return {static_cast<std::uint32_t>((word >> 18) & 0x3ffff), static_cast<std::uint32_t>((word >> 36) & k_generation_mask),
            (word & 0x3ffff) * 64};
  }
  static std::uint64_t word_of(std::uint64_t hash, const RecordPlace& place) {
    return (tag_of(hash) << 48) | (std::uint64_t{place.generation & k_generation_mask} << 36) |
           (std::uint64_t{place.segment} << 18) | (place.offset / 64);
  }
  bool is_living(std::uint64_t word) const;

  // The slot to fill: of an entry to be replaced, or an empty or dead one in the emptier bucket.
  template <typename MayReplace>
  Slot* slot_for(std::uint64_t hash, MayReplace& may_replace, std::uint64_t& expected) {
    Slot* best = nullptr;
    int most_free = 0;
    for (const std::uint32_t b : {first_bucket(hash), second_bucket(hash)}) {
      Slot* free_slot = nullptr;
      std::uint64_t free_word = 0;
      int free_slots = 0;
      for (auto& slot : region_->bucket(b).slots) {
        const std::uint64_t word = slot.load(std::memory_order_acquire);
        if (word != 0 && is_living(word)) {
          if ((word >> 48) != tag_of(hash) || !may_replace(place_of(word))) continue;
          expected = word;
          return &slot;
        }
        ++free_slots;
        free_slot = &slot;
        free_word = word;
      }
      if (free_slots <= most_free) continue;
      most_free = free_slots;
      best = free_slot;
      expected = free_word;
    }
    return best;
  }

  Region* region_;
};

}  // namespace cube::cache
