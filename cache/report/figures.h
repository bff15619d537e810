// The table of all figures in the report. Each row has functions that read a value from JobTotals
// (job_totals.h). Each figure of stats.def has a row. A figure that is counted for each tier
// has a row for each tier for which has_figure() is true. Thread safety: constants. The functions
// allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cache/report/job_totals.h"

namespace cube::cache {

enum class Unit : std::uint8_t { opens, calls, bytes, files, records, share, us, ns, ms };

// Whether a tier of this kind has this figure. A cluster has no `unwritten`, because records that
// are still to be shared are not counted.
constexpr bool has_figure(std::size_t tier, std::string_view name) {
  return name != "unwritten" || base::k_tier_kinds[tier].hits == base::Counter::hits_disk;
}

struct Figure {
  static constexpr std::size_t k_no_tier = static_cast<std::size_t>(-1);

  std::string_view group;  // the JSON object that contains the figure, such as "latency_us.hit";
                           // empty: the report itself
  std::string_view name;   // the name in that object
  Unit unit;
  bool is_of_each_tier = false;  // if so, it is left out while the tier's capacity is unknown
  std::size_t tier;  // the figure is left out if the job does not have this tier; k_no_tier: never
  // Exactly one of these two functions is null.
  std::uint64_t (*count)(const JobTotals& job, std::size_t tier);
  double (*real)(const JobTotals& job, std::size_t tier);

  bool is_in(const JobTotals& job) const {
    return tier == k_no_tier || job.tiers[tier].capacity != 0 ||
           (job.tiers[tier].is_there && !is_of_each_tier);
  }
  bool is_count() const { return count != nullptr; }
  std::uint64_t count_of(const JobTotals& job) const { return count(job, tier); }
  double real_of(const JobTotals& job) const {
    return is_count() ? static_cast<double>(count_of(job)) : real(job, tier);
  }
};

// All figures in the order of the JSON object. Figures of one object are adjacent.
std::span<const Figure> figures();

// A reason why opens were not served.
struct Bypassed {
  std::string_view place;  // in the JSON object, such as "bypassed.size"
  const char* reason;      // in the text of the report
  base::Counter counter;
  bool is_request;  // a cache without a size limit would have the file
};
inline constexpr Bypassed k_bypassed[] = {
#define CUBE_BYPASSED(name, place, is_request, reason, help) \
  {place, reason, base::Counter::name, is_request},
#include "cache/base/settings/stats.def"
};

}  // namespace cube::cache
