// Cleans up after dead processes, like an attaching process.
#pragma once

#include <gtest/gtest.h>

#include "cache/region/life/process_reaper.h"
#include "cache/region/life/process_slots.h"
#include "cache/region/life/robust_lock.h"

namespace cube::tests {

inline std::uint32_t reap(cache::Region& region) {
  const cache::RobustLock lock(&region.header().lifecycle);
  EXPECT_TRUE(lock);
  return cache::reap_dead_processes(region, region.own_slot());
}

}  // namespace cube::tests
