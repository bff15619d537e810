#include "cache/report/not_served.h"

#include <iterator>

#include "cache/report/figures.h"

namespace cube::cache {
namespace {

using base::Counter;

static_assert(std::size(k_bypassed) == k_unserved_reasons &&
              k_bypassed[0].counter == Counter::bypassed_size);

// If the index is full, replaces the usual reason of bypassed_full, which is that the memory is
// full.
constexpr const char* k_index_is_full =
    "while the index was full: very many small files (raise CUBESHIM_RAM)";

}  // namespace

void append_reasons(ReportText& text, const JobTotals& job, bool with_paths) {
  const char* before = "";
  for (const Bypassed& bypassed : k_bypassed) {
    const std::uint64_t n = job.totals[bypassed.counter];
    if (n == 0) continue;
    const bool is_index = bypassed.counter == Counter::bypassed_full && job.is_index_full;
    append(text, "{}{} {}", before, n, is_index ? k_index_is_full : bypassed.reason);
    const char* const path = job.unserved[&bypassed - k_bypassed];
    if (with_paths && *path != '\0') append(text, "{} {}", n == 1 ? ":" : ", first", path);
    before = with_paths ? "; " : ", ";
  }
}

void append_materializing_calls(ReportText& text, const JobTotals& job) {
  std::uint64_t others = job.totals[Counter::materialized];
  const char* before = " (for ";
  for (const auto& call : job.materialized_by) {
    if (call.count == 0) continue;
    append(text, "{}{} {}", before, call.name, call.count);
    others -= std::min(others, call.count);
    before = ", ";
  }
  if (*before == ',' && others != 0) append(text, ", others {}", others);
  if (*before == ',') append(text, ")");
}

void append_not_seen(ReportText& text, const char* before, const JobTotals& job,
                     std::span<const std::string> prefixes) {
  if (job.misspelled[0] != '\0') {
    append(text,
           "{}not seen: {} lies below a prefix but was opened by another name (add that name of "
           "the directory to "
           "CUBESHIM_PREFIXES)",
           before, job.misspelled);
  } else if (!prefixes.empty()) {
    append(text, "{}no file below", before);
    for (const auto& prefix : prefixes)
      append(text, "{} {}", &prefix == prefixes.data() ? "" : ",", prefix);
    append(
        text,
        " was opened (is that how the program spells it? `cubeshim doctor` checks the prefixes)");
  }
}

}  // namespace cube::cache
