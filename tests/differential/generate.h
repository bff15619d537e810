// Random sequences, each from its seed alone.
#pragma once

#include <cstdint>

#include "tests/differential/op.h"

namespace cube::differ {

// One seed of four makes a sequence for `outsider`, and of the others one of six makes one for a
// pack.
Kind kind_of(std::uint64_t seed);
// The same where there are no packs, and where there is nothing else.
Kind kind_without_packs(std::uint64_t seed);
Kind kind_of_pack(std::uint64_t seed);
Sequence generate(std::uint64_t seed, Kind kind);
// In the second pass the subject meets what another job has kept.
bool is_kept_turn(std::uint64_t seed, Kind kind);

}  // namespace cube::differ
