// The table of `cubeshim top`, in no more than 80 columns, and its JSON. Thread safety: pure functions.
#pragma once

#include <string>

#include "shim/cli/top_sample.h"

namespace cube::cli {

// A line for the cache, one of headings, and one for each job.
std::string top_table(const CacheLook& cache);
// "job 4711 has ended: 9000 opens, 66.7% hits, 3000 misses, 1.2G from the origin"
std::string line_of_ended(const JobRise& job);
// One object; of null: there is no cache.
std::string top_json(const CacheLook* cache);

}  // namespace cube::cli
