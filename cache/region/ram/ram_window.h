// The window through which RamTier writes records. Only RamTier's own files use it. Thread safety:
// a plain value. Each thread writes only to the room of its reservations.
#pragma once

#include "cache/base/memory/mapping.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

// The writable mapping of a leased segment or run. The mapping lives as long as any thread writes
// through it.
struct RamTier::Window {
  base::Mapping mapping;
  std::uint32_t segment = 0;
  std::uint32_t count = 1;
};

}  // namespace cube::cache
