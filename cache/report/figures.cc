#include "cache/report/figures.h"

#include <array>

#include "cache/report/report_text.h"

namespace cube::cache {
namespace {

using CountOf = std::uint64_t (*)(const JobTotals& job, std::size_t tier);
using RealOf = double (*)(const JobTotals& job, std::size_t tier);

// The value of `tier` in a row that is repeated for each tier.
constexpr std::size_t k_each_tier = Figure::k_no_tier - 1;

consteval Figure row(std::string_view place, Unit unit, std::size_t tier, CountOf count,
                     RealOf real = nullptr) {
  const std::size_t dot = place.rfind('.');
  const bool is_inside = dot != std::string_view::npos;
  return {.group = is_inside ? place.substr(0, dot) : "",
          .name = is_inside ? place.substr(dot + 1) : place,
          .unit = unit,
          .tier = tier,
          .count = count,
          .real = real};
}

consteval Figure row(std::string_view place, Unit unit, std::size_t tier, RealOf real) {
  return row(place, unit, tier, nullptr, real);
}

// The tier of a counter: the counter counts the hits of the tier, or is in the tier's JSON object.
consteval std::size_t tier_of(base::Counter counter, std::string_view place) {
  for (std::size_t i = 0; i < base::k_tiers; ++i) {
    const std::string_view name = base::k_tier_kinds[i].name;
    if (base::k_tier_kinds[i].hits == counter || place.substr(0, place.rfind('.')) == name)
      return i;
  }
  return Figure::k_no_tier;
}

#define CUBE_ROW(place, unit, tiers, value)                                          \
  row(place, Unit::unit, tiers,                                                      \
      []([[maybe_unused]] const JobTotals& job, [[maybe_unused]] std::size_t tier) { \
        return value;                                                                \
      }),
constexpr Figure k_rows[] = {
#define CUBE_COUNTER(name, place, unit, help) \
  CUBE_ROW(place, unit, tier_of(base::Counter::name, place), job.totals[base::Counter::name])
#define CUBE_FIGURE(value, place, unit, help) CUBE_ROW(place, unit, Figure::k_no_tier, job.value)
#define CUBE_TIER_FIGURE(field, unit, help) \
  CUBE_ROW(#field, unit, k_each_tier, job.tiers[tier].field)
#include "cache/base/settings/stats.def"
};
#undef CUBE_ROW

consteval std::size_t count_figures() {
  std::size_t n = 0;
  for (const Figure& row : k_rows) {
    if (row.tier != k_each_tier) ++n;
    for (std::size_t tier = 0; row.tier == k_each_tier && tier < base::k_tiers; ++tier)
      n += has_figure(tier, row.name) ? 1 : 0;
  }
  return n;
}

// Repeats a group of adjacent rows of tiers for each tier, so that each tier has one JSON object.
consteval auto all_figures() {
  std::array<Figure, count_figures()> all{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < std::size(k_rows);) {
    if (k_rows[i].tier != k_each_tier) {
      all[n++] = k_rows[i++];
      continue;
    }
    std::size_t end = i;
    while (end < std::size(k_rows) && k_rows[end].tier == k_each_tier) ++end;
    for (std::size_t tier = 0; tier < base::k_tiers; ++tier) {
      for (std::size_t of_tier = i; of_tier < end; ++of_tier) {
        if (!has_figure(tier, k_rows[of_tier].name)) continue;
        Figure& figure = all[n++] = k_rows[of_tier];
        figure.group = base::k_tier_kinds[tier].name;
        figure.is_of_each_tier = true;
        figure.tier = tier;
      }
    }
    i = end;
  }
  return all;
}

constexpr auto k_figures = all_figures();

// An upper bound of the size of the JSON report. Assumes that each figure needs its own object, a
// comma, and the longest number.
consteval std::size_t most_bytes() {
  std::size_t n = sizeof "{}\n";
  for (const Figure& figure : k_figures)
    n += figure.group.size() + figure.name.size() + sizeof R"("":{"":},)" + 24;
  return n;
}
static_assert(most_bytes() <= sizeof ReportText::bytes, "the report in JSON must fit");

}  // namespace

std::span<const Figure> figures() { return k_figures; }

}  // namespace cube::cache
