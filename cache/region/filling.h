// A segment that all processes of the node fill: OPEN and without owner. One word, for the region's
// header. Thread safety: a plain value; the functions by the atomics that they take.
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

// This function reads a word of the region's header. A segment that the region does not have counts
// as none.
Filling filling_in(const Region& region, const std::atomic<std::uint64_t>& word);
// Is the segment still to be filled? The holder of a claim on it may rely on that.
bool is_open_to_all(const Region& region, const Filling& filling);
// A segment that we have leased is opened to all and comes into the place of `full`, which is
// closed. If another process was quicker, `word` names its segment, and ours is closed.
void open_to_all(Region& region, std::atomic<std::uint64_t>& word, std::uint32_t leased,
                 const Filling& full);

}  // namespace cube::cache
