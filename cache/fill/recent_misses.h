// Files that programs have just read from the origin, because there was no room or because only a
// part was read. A prefetch of such a file would come too late, so the prefetcher skips it once.
// The region has a table of rows, indexed by the hash of the path. In a row, a time replaces the
// last 16 bits of the hash. The time is 0 until a prefetcher skips the file; then it is the second
// in which the file was skipped. If a program then misses the file within ten seconds, the skipped
// prefetch was probably meant for this read, so the row is cleared. Otherwise the file would be
// skipped and missed in every epoch. Thread-safe. A race can cost one fetch.
#pragma once

#include "cache/base/clock.h"
#include "cache/region/region.h"

namespace cube::cache {

namespace recent_misses {

inline constexpr std::uint64_t k_second_mask = 0xffff;
inline constexpr std::uint64_t k_just_now = 10;  // seconds

inline std::uint64_t name_of(std::uint64_t hash) { return hash & ~k_second_mask; }
// The current second in 16 bits; never 0.
inline std::uint64_t this_second() {
  return (base::coarse_monotonic_ns() / 1'000'000'000ULL % k_second_mask) + 1;
}

}  // namespace recent_misses

inline void note_miss(Region& region, std::uint64_t hash) {
  using namespace recent_misses;
  std::atomic<std::uint64_t>& row = region.recent_miss(hash);
  const std::uint64_t known = row.load(std::memory_order_relaxed), told = known & k_second_mask;
  const bool was_left_out = name_of(known) == name_of(hash) && told != 0 &&
                            (this_second() + k_second_mask - told) % k_second_mask < k_just_now;
  row.store(was_left_out ? 0 : name_of(hash), std::memory_order_relaxed);
}

// Whether a miss of this file is noted in its row. False if another file has overwritten the row.
inline bool is_noted_miss(Region& region, std::uint64_t hash) {
  using namespace recent_misses;
  return name_of(region.recent_miss(hash).load(std::memory_order_relaxed)) == name_of(hash);
}

// Whether was_just_missed() would return true. Changes nothing.
inline bool is_just_missed(Region& region, std::uint64_t hash) {
  using namespace recent_misses;
  return name_of(hash) != 0 &&
         region.recent_miss(hash).load(std::memory_order_relaxed) == name_of(hash);
}

// Whether to skip the prefetch of this file. Returns true only once for each miss.
inline bool was_just_missed(Region& region, std::uint64_t hash) {
  using namespace recent_misses;
  if (!is_just_missed(region, hash)) return false;
  region.recent_miss(hash).store(name_of(hash) | this_second(), std::memory_order_relaxed);
  return true;
}

}  // namespace cube::cache
