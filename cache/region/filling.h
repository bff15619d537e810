// A Filling names a segment that all processes of the node fill. Such a segment is in the state
// `open` and has no owner. A word in the region's header stores the Filling. Thread safety: a
// Filling is a plain value. The functions use the atomics that are passed to them.
#pragma once

#include <atomic>
#include <cstdint>

namespace cube::cache {

class Region;

struct Filling {
  std::uint32_t segment = 0, generation = 0;
  bool is_any = false;

  static Filling of_word(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word) - 1, static_cast<std::uint32_t>(word >> 32),
            static_cast<std::uint32_t>(word) != 0};
  }
  std::uint64_t as_word() const {
    return is_any ? std::uint64_t{generation} << 32 | (segment + 1) : 0;
  }
};

// Reads a word of the region's header. A segment number outside the region counts as no segment.
Filling filling_in(const Region& region, const std::atomic<std::uint64_t>& word);
// Whether the segment is still open to all. The answer stays valid while the caller has a pin on
// the segment.
bool is_open_to_all(const Region& region, const Filling& filling);
// Opens the segment `leased`, which this process has leased, to all processes, and closes the
// segment `full`. If another process was faster, `word` names the segment of the other process, and
// `leased` is closed instead.
void open_to_all(Region& region, std::atomic<std::uint64_t>& word, std::uint32_t leased,
                 const Filling& full);

}  // namespace cube::cache
