// A small region with its own records.
#pragma once

#include <gtest/gtest.h>

#include "cache/region/lanes.h"
#include "cache/region/ram/ram_tier.h"
#include "tests/support/test_region.h"

namespace cube::cache {

struct RamTierTest : testing::Test {
  tests::TestRegion region;
  RamTier tier{*region};

  std::uint64_t own_pins() const { return pins_of(*region, region->own_slot()); }
  std::uint32_t fill(std::uint32_t segment = 0) const {
    return region->segment_row(segment).fill.load();
  }
};

}  // namespace cube::cache
