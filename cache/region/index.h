// Maps 64-bit hashes to records. The index consists of tables, and a table consists of buckets of
// one cache line each. Every hash has two candidate buckets in each table. Only the first table is
// used until it is full; then the second table gets memory, and so on. A bucket has eight slots. A
// slot is one word: tag:16 | generation:12 | segment:18 | offset:18 (in units of 64 bytes). An
// empty slot is 0. One compare-and-swap publishes a slot, so readers find only complete entries. A
// slot is dead, and may be reused, if its segment now has another generation. Dead slots are swept
// before a segment's generations wrap around. Thread-safe, also across processes.
// Async-signal-safe, no allocation.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "cache/base/result.h"
#include "cache/region/region.h"

namespace cube::cache {

struct RecordPlace {
  std::uint32_t segment = 0;
  // All 32 bits of the segment's generation. A slot has only the low 12 bits.
  std::uint32_t generation = 0;
  // The offset from the segment's start in bytes, a multiple of 64.
  std::uint64_t offset = 0;
};

class Index {
 public:
  static constexpr std::uint32_t k_generation_mask = 0xfff;
  // Limits the entries of one hash to those that fit into its buckets in three tables. The later,
  // large tables do not raise this limit. A hash can have many entries. All paths of a file share
  // the hash of its inode. All files of an origin without inode numbers share one hash.
  static constexpr std::uint32_t k_most_of_one = 3 * 2 * IndexBucket::k_slots;

  explicit Index(Region& region) : region_(&region) {}

  // Calls visit(place) for each entry that may have this hash, until visit returns true. Here,
  // place.generation has only the low 12 bits.
  template <typename Visit>
  bool visit(std::uint64_t hash, Visit&& visit) const {
    const std::uint64_t tag = tag_of(hash);
    for (std::uint32_t t = 0, n = tables(); t < n; ++t) {
      IndexBucket* const table = region_->index_table(t);
      const std::uint32_t second = second_bucket(hash, t);
      __builtin_prefetch(&table[second]);
      for (const std::uint32_t b : {first_bucket(hash, t), second}) {
        for (const auto& slot : table[b].slots) {
          // Pairs with the release in insert: a record is complete before its slot is visible.
          const std::uint64_t word = slot.load(std::memory_order_acquire);
          if ((word >> 48) == tag && visit(place_of(word))) return true;
        }
      }
    }
    return false;
  }

  // ENOSPC: all buckets of this hash are full of living entries. EMLINK: the buckets are full, and
  // this hash has k_most_of_one entries. EAGAIN: other writers were faster too many times.
  // `may_replace` is called for entries with the same tag, and returns whether the new entry makes
  // such an entry useless. `is_dead` is called for entries with any tag, and returns whether such
  // an entry is useless to all processes.
  template <typename MayReplace, typename IsDead>
  base::Result<void> insert(std::uint64_t hash, const RecordPlace& place, MayReplace&& may_replace,
                            IsDead&& is_dead) {
    const std::uint64_t word = word_of(hash, place);
    for (int attempt = 0; attempt < 16; ++attempt) {
      const std::uint32_t n = tables();
      std::uint64_t expected = 0;
      auto* slot = slot_for(hash, n, may_replace, expected);
      if (slot == nullptr) {
        if (entries_of(hash) >= k_most_of_one) return base::fail(EMLINK);
        slot = dead_slot_for(hash, n, is_dead, expected);
      }
      if (slot == nullptr) {
        if (const auto added = region_->add_index_table(n); !added) return added;
        continue;
      }
      // Pairs with the acquire in visit. seq_cst, because the fetching process checks for writers
      // afterwards (FileCache::fetch).
      if (slot->compare_exchange_strong(expected, word, std::memory_order_seq_cst)) return {};
    }
    return base::fail(EAGAIN);
  }

  // Calls visit(place) for every living entry of the region.
  template <typename Visit>
  void visit_all(Visit&& visit) const {
    for (std::uint32_t t = 0, n = tables(); t < n; ++t) {
      for (std::uint32_t b = 0; b < region_->layout().bucket_count[t]; ++b) {
        for (const auto& slot : region_->index_table(t)[b].slots) {
          const std::uint64_t word = slot.load(std::memory_order_acquire);
          if (word != 0 && is_living(word)) visit(place_of(word));
        }
      }
    }
  }

  // Empties the slots whose segment now has another generation.
  void sweep_dead() const {
    for (std::uint32_t t = 0, n = tables(); t < n; ++t) {
      for (std::uint32_t b = 0; b < region_->layout().bucket_count[t]; ++b) {
        for (auto& slot : region_->index_table(t)[b].slots) {
          std::uint64_t word = slot.load(std::memory_order_acquire);
          if (word != 0 && !is_living(word))
            slot.compare_exchange_strong(word, 0, std::memory_order_acq_rel);
        }
      }
    }
  }

 private:
  using Slot = std::atomic<std::uint64_t>;

  // Never 0, so that the word of a slot in use is never 0.
  static std::uint64_t tag_of(std::uint64_t hash) {
    return (hash & 0xffff) != 0 ? hash & 0xffff : 1;
  }
  static std::uint32_t reduce(std::uint32_t part, std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{part} * n) >> 32);
  }
  // Pairs with the release in Region::add_index_table. The result is within bounds even if the word
  // is corrupt.
  std::uint32_t tables() const {
    return std::min(region_->header().index_tables.load(std::memory_order_acquire), k_index_tables);
  }
  std::uint32_t first_bucket(std::uint64_t hash, std::uint32_t table) const {
    return reduce(static_cast<std::uint32_t>(hash >> 32), region_->layout().bucket_count[table]);
  }
  std::uint32_t second_bucket(std::uint64_t hash, std::uint32_t table) const {
    return reduce(static_cast<std::uint32_t>((hash * 0x9e3779b97f4a7c15ULL) >> 32),
                  region_->layout().bucket_count[table]);
  }
  static RecordPlace place_of(std::uint64_t word) {
    return {static_cast<std::uint32_t>((word >> 18) & 0x3ffff),
            static_cast<std::uint32_t>((word >> 36) & k_generation_mask), (word & 0x3ffff) * 64};
  }
  static std::uint64_t word_of(std::uint64_t hash, const RecordPlace& place) {
    return (tag_of(hash) << 48) | (std::uint64_t{place.generation & k_generation_mask} << 36) |
           (std::uint64_t{place.segment} << 18) | (place.offset / 64);
  }
  bool is_living(std::uint64_t word) const;
  std::uint32_t entries_of(std::uint64_t hash) const {
    std::uint32_t entries = 0;
    visit(hash, [&](const RecordPlace&) {
      ++entries;
      return false;
    });
    return entries;
  }

  // Returns the slot to fill. If an entry in any table can be replaced, the result is its slot.
  // Otherwise the result is an empty or dead slot in the emptier bucket of the first table that has
  // such a slot.
  template <typename MayReplace>
  Slot* slot_for(std::uint64_t hash, std::uint32_t tables, MayReplace& may_replace,
                 std::uint64_t& expected) {
    Slot* best = nullptr;
    for (std::uint32_t t = 0; t < tables; ++t) {
      const bool wanted = best == nullptr;
      int most_free = 0;
      for (const std::uint32_t b : {first_bucket(hash, t), second_bucket(hash, t)}) {
        Slot* free_slot = nullptr;
        std::uint64_t free_word = 0;
        int free_slots = 0;
        for (auto& slot : region_->index_table(t)[b].slots) {
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
        if (!wanted || free_slots <= most_free) continue;
        most_free = free_slots;
        best = free_slot;
        expected = free_word;
      }
    }
    return best;
  }

  // Returns the slot of an entry whose record is dead. Called only if all buckets are full, because
  // this function must inspect each record.
  template <typename IsDead>
  Slot* dead_slot_for(std::uint64_t hash, std::uint32_t tables, IsDead& is_dead,
                      std::uint64_t& expected) {
    for (std::uint32_t t = 0; t < tables; ++t) {
      for (const std::uint32_t b : {first_bucket(hash, t), second_bucket(hash, t)}) {
        for (auto& slot : region_->index_table(t)[b].slots) {
          expected = slot.load(std::memory_order_acquire);
          if (expected != 0 && is_dead(place_of(expected))) return &slot;
        }
      }
    }
    return nullptr;
  }

  Region* region_;
};

}  // namespace cube::cache
