// Records of a small region of their own.
#pragma once

#include <gtest/gtest.h>

#include "cache/region/ram/ram_tier.h"
#include "tests/support/test_region.h"

namespace cube::cache {

struct RamTierTest : testing::Test {
  tests::TestRegion region;
  RamTier tier{*region};

  std::uint64_t own_pins() const {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < region->layout().segment_count; ++i)
      sum += region->pin_row(region->own_slot())[i].load();
    return sum;
  }
  std::uint32_t fill(std::uint32_t segment = 0) const {
    return region->segment_row(segment).fill.load();
  }
};

}  // namespace cube::cache
