// A ring of four segments of 2 MiB, and files in it of 60,000 bytes each.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cache/region/ring.h"
#include "tests/support/ring_files.h"

namespace cube::cache {

struct RingTest : testing::Test {
  static constexpr std::size_t k_bytes = 60'000;

  tests::TestRegion region{32 * tests::k_mib};
  RamTier tier{*region};
  Ring& ring = tier.ring();
  std::vector<std::string> paths;

  RingTest() { ring.make(8 * tests::k_mib); }

  static std::string content(const std::string& path) {
    return tests::content_of(path, 0, k_bytes);
  }
  base::Result<Pin> put_next() {
    const std::string path = "/data/" + std::to_string(paths.size());
    auto pin = tests::put_in_ring(tier, path, content(path));
    if (pin) paths.push_back(path);
    return pin;
  }
  bool open(const std::string& path) { return tests::open_right(tier, path, content(path)); }
  std::uint32_t segment_of(const std::string& path) {
    const Pin pin = tests::find(tier, path);
    return pin ? ring.segment_of(*pin) : UINT32_MAX;
  }
  // Adds records until no room is left.
  void fill() {
    while (put_next()) {
    }
  }
  // Opens all files in the segment of the first file, and returns them.
  std::vector<std::string> open_first_segment() {
    const std::uint32_t segment = segment_of(paths.front());
    std::vector<std::string> opened;
    for (const auto& path : paths) {
      if (segment_of(path) == segment && open(path)) opened.push_back(path);
    }
    return opened;
  }
};

}  // namespace cube::cache
