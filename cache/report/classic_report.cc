#include "cache/report/classic_report.h"

#include <optional>

#include "cache/report/figures.h"
#include "cache/report/not_served.h"

namespace cube::cache {
namespace {

using base::Counter;

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

void append_classic_rates(ReportText& text, const char* label, std::uint64_t requests,
                          std::uint64_t hits) {
  const std::uint64_t misses = requests > hits ? requests - hits : 0;
  append(text,
         "cubeshim: {} request_count:{} hit_count:{} miss_count:{} hit_rate:{:.2f}% "
         "miss_rate:{:.2f}%\n",
         label, requests, hits, misses, 100 * share(hits, requests), 100 * share(misses, requests));
}

// Appends a line with the figures of one JSON object: "cubeshim: disk hit_count:2 capacity:44
// used:33 ...". Appends nothing if the object has no figures.
void append_classic_group(ReportText& text, const JobTotals& job, std::string_view group,
                          std::optional<Counter> hits) {
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

// "cubeshim: large files: 46.9 MiB in 480 reads, 95.0 % of them without a wait; 22.9 MiB came from
// the origin ..."
void append_classic_large_files(ReportText& text, const JobTotals& job) {
  const std::uint64_t hits = job.totals[Counter::block_hits],
                      reads = hits + job.totals[Counter::block_misses];
  const std::uint64_t by_kernel = job.totals[Counter::block_kernel],
                      mapped = job.totals[Counter::block_mapped];
  append(text, "cubeshim: large files: {:.1f} MiB in {} reads, {:.1f} % of them without a wait",
         mib(job.totals[Counter::block_read] + by_kernel), reads, 100 * share(hits, reads));
  if (mapped != 0) append(text, "; mappings showed {:.1f} MiB of memory", mib(mapped));
  append(text, "; {:.1f} MiB from the origin", mib(job.totals[Counter::block_origin]));
  for (const base::TierKind& tier : base::k_tier_kinds) {
    if (const std::uint64_t bytes = job.totals[tier.blocks]; bytes != 0)
      append(text, ", {:.1f} from the {}", mib(bytes), tier.name);
  }
  append(text, ", {:.1f} of them ahead", mib(job.totals[Counter::block_ahead]));
  const std::uint64_t unread = job.chunk_unread, wasted = job.totals[Counter::block_wasted];
  if (unread != 0 || wasted != 0)
    append(text, " ({:.1f} not read yet, {:.1f} wasted)", mib(unread), mib(wasted));
  if (by_kernel != 0)
    append(
        text,
        "; {:.1f} MiB left to the kernel (memory full: raise CUBESHIM_RAM; or changed while open)",
        mib(by_kernel));
  append(text, "\n");
}

// "cubeshim: names: 4101 looks answered from memory (41 listings, 4000 stats, 60 absent); the
// origin gave 41 listings ..."
void append_classic_metadata(ReportText& text, const JobTotals& job) {
  append(text, "cubeshim: names: {} looks answered from memory ({} listings, {} stats, {} absent)",
         job.metadata_answered(), job.totals[Counter::metadata_listed],
         job.totals[Counter::metadata_stats], job.totals[Counter::metadata_negative]);
  append(text,
         "; the origin was asked for {} listings, {} stats ahead and {} looks at directories\n",
         job.totals[Counter::metadata_read], job.totals[Counter::metadata_gathered],
         job.totals[Counter::metadata_revalidations]);
}

}  // namespace

void append_classic_served(ReportText& text, const JobTotals& job,
                           std::span<const std::string> prefixes) {
  const std::uint64_t served = job.opens() - job.bypassed();
  append(text, "cubeshim: served {} of {} opens under the prefixes", served, job.opens());
  if (job.bypassed() != 0) append(text, "; not served: ");
  append_reasons(text, job, /*with_paths=*/false);
  if (job.totals[Counter::materialized] != 0) {
    append(text, "; served, then handed to the kernel: {}", job.totals[Counter::materialized]);
    append_materializing_calls(text, job);
  }
  if (job.misspelled[0] != '\0' || job.has_seen_nothing())
    append_not_seen(text, "; ", job, prefixes);
  append(text, "\n");
}

ReportText report_as_classic(const JobTotals& job, std::uint64_t last_requests,
                             std::uint64_t last_hits, std::span<const std::string> prefixes) {
  const std::uint64_t requests = job.requests();
  ReportText text;
  append_classic_rates(text, "cycle", requests - std::min(last_requests, requests),
                       job.hits() - std::min(last_hits, job.hits()));
  append_classic_rates(text, "sum", requests, job.hits());
  if (job.totals[Counter::prefetch_fetched] != 0) append_classic_group(text, job, "prefetch", {});
  if (job.totals[Counter::large_opens] != 0) {
    append_classic_group(text, job, "blocks", {});
    append_classic_large_files(text, job);
  }
  if (job.metadata_answered() != 0) append_classic_metadata(text, job);
  for (const base::TierKind& kind : base::k_tier_kinds)
    append_classic_group(text, job, kind.name, kind.hits);
  append_classic_served(text, job, prefixes);
  return text;
}

}  // namespace cube::cache
