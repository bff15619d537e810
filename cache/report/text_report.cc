#include "cache/report/text_report.h"

#include <optional>

#include "cache/report/figures.h"

namespace cube::cache {
namespace {

using base::Counter;

// For bypassed_full, the reason of which is the full memory otherwise.
constexpr const char* k_index_is_full = "while the index was full: very many small files (raise CUBESHIM_RAM)";

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

void append_rates(ReportText& text, const char* label, std::uint64_t requests, std::uint64_t hits) {
  const std::uint64_t misses = requests > hits ? requests - hits : 0;
  append(text, "cubeshim: {} request_count:{} hit_count:{} miss_count:{} hit_rate:{:.2f}% miss_rate:{:.2f}%\n", label, requests,
         hits, misses, 100 * share(hits, requests), 100 * share(misses, requests));
}

// "cubeshim: disk hit_count:2 capacity:44 used:33 ...": a line of the figures of an object, or nothing if it has none.
void append_group(ReportText& text, const JobTotals& job, std::string_view group, std::optional<Counter> hits) {
  bool has_begun = false;
  for (const Figure& figure : figures()) {
    if (figure.group != group || !figure.is_in(job)) continue;
    if (!has_begun) append(text, "cubeshim: {}", group);
    if (!has_begun && hits) append(text, " hit_count:{}", job.totals[*hits]);
    has_begun = true;
    append(text, " {}:{}", figure.name, figure.count_of(job));
  }
  if (has_begun) append(text, "\n");
}

double mib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// "cubeshim: large files: 46.9 MiB in 480 reads, 95.0 % of them without a wait; 22.9 MiB came from the origin ..."
void append_large_files(ReportText& text, const JobTotals& job) {
  const std::uint64_t hits = job.totals[Counter::block_hits], reads = hits + job.totals[Counter::block_misses];
  const std::uint64_t by_kernel = job.totals[Counter::block_kernel], mapped = job.totals[Counter::block_mapped];
  append(text, "cubeshim: large files: {:.1f} MiB in {} reads, {:.1f} % of them without a wait",
         mib(job.totals[Counter::block_read] + by_kernel), reads, 100 * share(hits, reads));
  if (mapped != 0) append(text, "; {:.1f} MiB mapped from memory", mib(mapped));
  append(text, "; {:.1f} MiB from the origin", mib(job.totals[Counter::block_origin]));
  for (const base::TierKind& tier : base::k_tier_kinds) {
    if (const std::uint64_t bytes = job.totals[tier.blocks]; bytes != 0)
      append(text, ", {:.1f} from the {}", mib(bytes), tier.name);
  }
  append(text, ", {:.1f} of them ahead", mib(job.totals[Counter::block_ahead]));
  const std::uint64_t unread = job.chunk_unread, wasted = job.totals[Counter::block_wasted];
  if (unread != 0 || wasted != 0) append(text, " ({:.1f} not read yet, {:.1f} wasted)", mib(unread), mib(wasted));
  if (by_kernel != 0)
    append(text, "; {:.1f} MiB left to the kernel (memory full: raise CUBESHIM_RAM; or changed while open)", mib(by_kernel));
  append(text, "\n");
}

std::uint64_t names_answered(const JobTotals& job) {
  return job.totals[Counter::names_listed] + job.totals[Counter::names_stats] + job.totals[Counter::names_absent];
}

// "cubeshim: names: 4101 looks answered from memory (41 listings, 4000 stats, 60 absent); the origin gave 41 listings ..."
void append_names(ReportText& text, const JobTotals& job) {
  append(text, "cubeshim: names: {} looks answered from memory ({} listings, {} stats, {} absent)", names_answered(job),
         job.totals[Counter::names_listed], job.totals[Counter::names_stats], job.totals[Counter::names_absent]);
  append(text, "; the origin was asked for {} listings, {} stats ahead and {} looks at directories\n",
         job.totals[Counter::names_read], job.totals[Counter::names_gathered], job.totals[Counter::names_checks]);
}

}  // namespace

void append_served(ReportText& text, const JobTotals& job, std::span<const std::string> prefixes) {
  const std::uint64_t served = job.hits() + job.totals[Counter::misses] + job.totals[Counter::large_opens];
  append(text, "cubeshim: served {} of {} opens under the prefixes", served, job.opens());
  const char* before = "; not served: ";
  for (const auto& [counter, is_request, reason] : k_bypassed) {
    if (job.totals[counter] == 0) continue;
    const bool is_index = counter == Counter::bypassed_full && job.is_index_full;
    append(text, "{}{} {}", before, job.totals[counter], is_index ? k_index_is_full : reason);
    before = ", ";
  }
  std::uint64_t others = job.totals[Counter::materialized];
  if (others != 0) append(text, "; served, then handed to the kernel: {}", others);
  before = " (for ";
  for (const auto& call : job.materialized_by) {
    if (call.count == 0) continue;
    append(text, "{}{} {}", before, call.name, call.count);
    others -= std::min(others, call.count);
    before = ", ";
  }
  if (*before == ',' && others != 0) append(text, ", others {}", others);
  if (*before == ',') append(text, ")");
  if (job.misspelled[0] != '\0') {
    append(
        text,
        "; not seen: {} lies below a prefix but was opened by another name (add that name of the directory to CUBESHIM_PREFIXES)",
        job.misspelled);
  } else if (job.opens() == 0 && names_answered(job) == 0 && !prefixes.empty()) {
    append(text, "; no file below");
    for (const auto& prefix : prefixes) append(text, "{} {}", &prefix == prefixes.data() ? "" : ",", prefix);
    append(text, " was opened (is that how the program spells it? `cubeshim doctor` looks at the prefixes)");
  }
  append(text, "\n");
}

ReportText report_as_text(const JobTotals& job, std::uint64_t last_requests, std::uint64_t last_hits,
                          std::span<const std::string> prefixes) {
  const std::uint64_t requests = job.requests();
  ReportText text;
  append_rates(text, "cycle", requests - std::min(last_requests, requests), job.hits() - std::min(last_hits, job.hits()));
  append_rates(text, "sum", requests, job.hits());
  if (job.totals[Counter::prefetch_fetched] != 0) append_group(text, job, "prefetch", {});
  if (job.totals[Counter::large_opens] != 0) {
    append_group(text, job, "blocks", {});
    append_large_files(text, job);
  }
  if (names_answered(job) != 0) append_names(text, job);
  for (const base::TierKind& kind : base::k_tier_kinds) append_group(text, job, kind.name, kind.hits);
  append_served(text, job, prefixes);
  return text;
}

}  // namespace cube::cache
