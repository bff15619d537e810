// Makes random sequences. A sequence depends only on its seed.
#pragma once

#include <cstdint>

#include "tests/differential/op.h"

namespace cube::differ {

// One seed in four makes a sequence for `outsider`. One in six of the other seeds makes a sequence
// for a pack.
Kind kind_of(std::uint64_t seed);
// Like kind_of, but the first function never chooses a pack, and the second always does.
Kind kind_without_packs(std::uint64_t seed);
Kind kind_of_pack(std::uint64_t seed);
Sequence generate(std::uint64_t seed, Kind kind);
// Returns true if the second pass uses records that were kept from another job.
bool is_kept_turn(std::uint64_t seed, Kind kind);

}  // namespace cube::differ
