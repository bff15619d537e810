// Notes that a process makes for the report of its job, in addition to its counters
// (cache/base/settings/stats.h). Thread safety: any thread and signal handler of any process may
// call the functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/region/region.h"

namespace cube::cache {

// Counts a served file that was materialized for this call.
void count_materialized(Region& region, std::uint32_t job, const char* call);

// Notes that a program has opened a file below a prefix by a path outside all prefixes. Only the
// first path of a job is kept.
void note_misspelled(Region& region, std::uint32_t job, std::string_view path);

}  // namespace cube::cache
