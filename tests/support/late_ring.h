// A region full of resident files, and a ring that is made afterwards, so that segments join the
// ring one by one. Thread safety: the same as that of RamTier.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/hash.h"
#include "cache/region/segments.h"
#include "tests/support/ring_files.h"

namespace cube::tests {

inline constexpr std::size_t k_late_bytes = 60'000;
inline constexpr std::size_t k_most_of_one = 2 * k_mib / k_late_bytes;  // files in a segment

// Returns content that is cheap to compute, for regions that are filled a hundred times.
inline std::string late_content(const std::string& path) {
  std::string bytes(k_late_bytes, static_cast<char>('a' + base::hash_path(path) % 26));
  return bytes.replace(0, path.size(), path).replace(k_late_bytes - path.size(), path.size(), path);
}

// A region that is full of resident files, and a ring of four segments that is made later.
struct LateRing {
  TestRegion region;
  cache::RamTier tier{*region};
  cache::Ring& ring = tier.ring();
  std::vector<std::string> resident, ahead;

  explicit LateRing(std::uint64_t bytes = 32 * k_mib, std::uint64_t ring_bytes = 8 * k_mib)
      : region(bytes) {
    while (true) {
      const std::string path = "/resident/" + std::to_string(resident.size());
      if (!put(tier, path, late_content(path))) break;
      resident.push_back(path);
    }
    // Like a job that ends, releases the lease.
    tier.release_lease();
    ring.make(ring_bytes);
  }
  cache::SegmentRow& row(std::uint32_t segment) { return region->segment_row(segment); }
  bool put_next() {
    const std::string path = "/ahead/" + std::to_string(ahead.size());
    if (!put_in_ring(tier, path, late_content(path))) return false;
    ahead.push_back(path);
    return true;
  }
  void fill() {
    while (put_next()) {
    }
  }
  bool is_there(const std::string& path) {
    const cache::Pin pin = find(tier, path);
    return pin && bytes_of(*pin) == late_content(path);
  }
  std::size_t residents_left() {
    return static_cast<std::size_t>(std::count_if(
        resident.begin(), resident.end(), [&](const auto& path) { return is_there(path); }));
  }
  std::uint32_t joined() {
    std::uint32_t n = 0;
    for (std::uint32_t segment = 0; segment < ring.end_segment(); ++segment)
      n += ring.owns(segment) ? 1 : 0;
    return n;
  }
  // Returns a pin of the first resident file of each segment. These files are open as long as the
  // pins exist.
  std::vector<cache::Pin> one_of_each() {
    std::vector<cache::Pin> pins(ring.end_segment());
    for (const auto& path : resident) {
      cache::Pin pin = find(tier, path);
      if (!pin) continue;
      cache::Pin& place = pins[ring.segment_of(*pin)];
      if (!place) place = std::move(pin);
    }
    return pins;
  }
};

}  // namespace cube::tests
