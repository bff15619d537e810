// Notes paths that were not served, for the report of a job. For each reason, only the first path
// is noted. There are few rows, because hundreds of jobs share a small region. If no row is free, a
// new job takes the row of an older job, whose report then names no path. Thread-safe, also across
// processes; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cache/region/region.h"

namespace cube::cache {

// `reason` is below k_unserved_reasons.
void note_unserved(const Region& region, std::uint32_t job, std::size_t reason,
                   std::string_view path);
// Null: the job has no row.
const UnservedRow* unserved_of(const Region& region, std::uint32_t job);

}  // namespace cube::cache
