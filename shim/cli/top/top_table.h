// The table of `cubeshim top`, in at most 80 columns, and its JSON. Thread safety: pure functions.
#pragma once

#include <span>
#include <string>

#include "cache/report/figures.h"
#include "shim/cli/top/top_sample.h"

namespace cube::cli {

// A column of the table, which is also a field of the JSON object. The figure covers the time
// between two samples; counts are per second.
struct TopColumn {
  const char* heading;
  int width;
  const char* key;  // JSON pointer
  const char* group;
  const char* figure;
};
enum class TopSet { files, large, metadata };
inline constexpr TopSet k_top_sets[] = {TopSet::files, TopSet::large, TopSet::metadata};
std::span<const TopColumn> columns_of(TopSet set);
double value_of(const TopColumn& column, const JobRise& job);
std::string cell_of(const TopColumn& column, const JobRise& job);
// Returns a line such as "name: 12.0 MiB of 2.0 GiB used by 600 files, 3 processes".
std::string line_of_cache(const CacheLook& cache);
// Returns a line of headings and a line for each server; empty if the cache has no servers.
std::string table_of_servers(const CacheLook& cache);
// Both return an empty string if no gateway is alive. line_of_gateway adds no newline.
std::string table_of_gateway(const CacheLook& cache);
std::string line_of_gateway(const CacheLook& cache);
// Returns at most four digits and a letter, such as "4.1k" or "50.0M".
std::string short_count(double value);
std::string short_bytes(double value);
std::string short_value(cache::Unit unit, double value);

// Returns a line for the cache, a line of headings, and a line for each job.
std::string top_table(const CacheLook& cache);
// Returns "job 4711 has ended: 9000 opens, 66.7% hits, 3000 misses, 1.2G from the origin".
std::string line_of_ended(const JobRise& job);
// Returns one object. `cache` is null if there is no cache.
std::string top_json(const CacheLook* cache);

}  // namespace cube::cli
