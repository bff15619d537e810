// Makes random sequences, each from its seed alone.
#pragma once

#include <cstdint>

#include "tests/differential/op.h"

namespace cube::differ {

// One seed in four makes a sequence for `outsider`; of the others, one in six makes one for a pack.
Kind kind_of(std::uint64_t seed);
// Like kind_of, but the first function never chooses packs, and the second always does.
Kind kind_without_packs(std::uint64_t seed);
Kind kind_of_pack(std::uint64_t seed);
Sequence generate(std::uint64_t seed, Kind kind);
// True if the second pass uses records that another job has kept.
bool is_kept_turn(std::uint64_t seed, Kind kind);

}  // namespace cube::differ
