// A segment that all processes of the node fill: OPEN and without an owner. It is stored as one
// word in the region's header. Thread safety: Filling is a plain value; the functions use the
// atomics that they are given.
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

// Reads a word of the region's header. A segment number outside the region counts as none.
Filling filling_in(const Region& region, const std::atomic<std::uint64_t>& word);
// True if the segment is still the one to fill. The answer stays valid while the caller has a pin
// on it.
bool is_open_to_all(const Region& region, const Filling& filling);
// Replaces `full`, which it closes, by a segment that we have leased, and opens that one to all
// processes. If another process was faster, `word` names that process's segment, and ours is
// closed.
void open_to_all(Region& region, std::atomic<std::uint64_t>& word, std::uint32_t leased,
                 const Filling& full);

}  // namespace cube::cache
