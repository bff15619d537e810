// Random sequences, each from its seed alone.
#pragma once

#include <cstdint>

#include "tests/differential/op.h"

namespace cube::differ {

// One seed of four makes a sequence with changes by a process without the library. Those are promised to be seen where each
// open looks, so it runs in other subjects.
bool has_outsider(std::uint64_t seed);
// One of eight is of the operations that are checked against a model.
bool is_of_model(std::uint64_t seed);
Sequence generate(std::uint64_t seed);

}  // namespace cube::differ
