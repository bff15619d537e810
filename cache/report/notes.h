// Notes of a process for the report of its job, besides its counters (cache/base/settings/stats.h).
// Thread safety: any thread and signal handler of any process.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/region/region.h"

namespace cube::cache {

// A served file has become a kernel file for this call.
void count_materialized(Region& region, std::uint32_t job, const char* call);

// A program has opened a file below a prefix by a name that no prefix has. The first one of a job
// is kept.
void note_misspelled(Region& region, std::uint32_t job, std::string_view path);

}  // namespace cube::cache
