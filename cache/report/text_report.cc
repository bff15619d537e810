#include "cache/report/text_report.h"

#include <algorithm>

#include "cache/report/not_served.h"

namespace cube::cache {
namespace {

using base::Counter;

// Wasted prefetches are mentioned if they are at least this percentage of all prefetches.
constexpr double k_told_percent = 10;

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

// Appends "cubeshim: served: 9000 file opens, 440.1 MiB read or mapped: 6000 from memory (2962 of
// them fetched ahead), 3000 from the mount".
void append_served(ReportText& text, const JobTotals& job) {
  const auto& totals = job.totals;
  const std::uint64_t served = job.opens() - job.bypassed();
  const std::uint64_t bytes = totals[Counter::bytes_served];
  append(text, "cubeshim: served: {} file open{}, ", served, served == 1 ? "" : "s");
  append_bytes(text, bytes);
  append(text, " read or mapped");
  const char* before = ": ";
  const auto add = [&](std::uint64_t n, const char* from, const char* name) {
    if (n == 0) return;
    append(text, "{}{} {}{}", before, n, from, name);
    before = ", ";
  };
  add(totals[Counter::hits_ram], "from ", "memory");
  if (const std::uint64_t ahead = totals[Counter::prefetch_early]; ahead != 0)
    append(text, " ({} of them fetched ahead)", ahead);
  for (const base::TierKind& tier : base::k_tier_kinds)
    add(totals[tier.hits], "from the ", tier.name);
  const std::uint64_t of_objects =
      std::min(totals[Counter::bucket_misses], totals[Counter::misses]);
  add(totals[Counter::misses] - of_objects, "from the ", "mount");
  add(of_objects, "from the ", "object store");
  add(totals[Counter::large_opens], "of large files, ", "which are read in parts");
  append(text, "\n");
}

void append_not_served(ReportText& text, const JobTotals& job,
                       std::span<const std::string> prefixes) {
  append(text, "cubeshim: not served: ");
  if (job.bypassed() == 0) append(text, "nothing");
  append_reasons(text, job, /*with_paths=*/true);
  if (const std::uint64_t n = job.totals[Counter::materialized]; n != 0) {
    append(text, "; served first, then handed to the kernel: {}", n);
    append_materializing_calls(text, job);
  }
  if (const std::uint64_t n = job.totals[Counter::locked]; n != 0)
    append(text, "; {} locked, so {} opened at the {}, too", n, n == 1 ? "it was" : "they were",
           job.name_of_origin());
  if (job.misspelled[0] != '\0') append_not_seen(text, "; ", job, prefixes);
  append(text, "\n");
}

// Appends the line about the saved time. Files that are served in blocks are not included, because
// the kernel would have read them ahead, too, to an unknown degree.
void append_saved(ReportText& text, const JobTotals& job) {
  append(text, "cubeshim: time saved: ");
  const auto saved = job.saved();
  if (job.requests() == 0) {
    append(text, "not known, only files that are cached as a whole are timed");
  } else if (job.hits() == 0) {
    append(text, "none, no file was in the cache when it was opened");
  } else if (!saved && job.timed_misses() != 0) {
    const std::uint64_t n = job.timed_misses();
    append(text, "not known, only {} {} fetched from the {} at {} open", n,
           n == 1 ? "file was" : "files were", job.name_of_origin(), n == 1 ? "its" : "their");
  } else if (!saved) {
    append(text, "not known, no file was fetched from the {} at its open", job.name_of_origin());
  } else {
    constexpr double k_a_range = 1.1;
    if (saved->most_ns == 0) {
      append(text, "none to speak of");
    } else if (saved->least_ns == 0) {
      append(text, "up to ");
    } else if (saved->most_ns < k_a_range * saved->least_ns) {
      append(text, "about ");
    } else {
      append_time(text, saved->least_ns);
      append(text, " to ");
    }
    if (saved->most_ns != 0) {
      append_time(text, saved->most_ns);
      append(text, " of waiting, all processes together");
    }
    append(text, ": a file took ");
    append_time(text, job.ns_of_miss().value_or(0));
    append(text, " from the {}", job.name_of_origin());
    if (const auto hit = job.ns_of_hit(); hit) {
      append(text, " and ");
      append_time(text, *hit);
      append(text, " from the cache");
    }
  }
  append(text, "\n");
}

// "cubeshim: large files: 46.9 MiB in 480 reads, 95.0 % of them without a wait; cubeshim
// fetched 22.9 MiB from the mount ..."
void append_large_files(ReportText& text, const JobTotals& job) {
  const auto& totals = job.totals;
  const std::uint64_t hits = totals[Counter::block_hits],
                      reads = hits + totals[Counter::block_misses];
  const std::uint64_t by_kernel = totals[Counter::block_kernel],
                      wasted = totals[Counter::block_wasted];
  append(text, "cubeshim: large files: ");
  if (reads == 0 && by_kernel == 0) {
    append(text, "no reads seen (those by sendfile, splice, exec or io_uring are not counted)");
  } else {
    append_bytes(text, totals[Counter::block_read] + by_kernel);
    append(text, " in {} read{}", reads, reads == 1 ? "" : "s");
    if (reads != 0) append(text, ", {:.1f} % of them without a wait", percent(hits, reads));
  }
  const auto add = [&](const char* before, std::uint64_t bytes, const char* after,
                       const char* name = "") {
    append(text, "{}", before);
    append_bytes(text, bytes);
    append(text, "{}{}", after, name);
  };
  // Each page that a mapping shows is counted once in a job, even if the program does not touch it.
  if (const std::uint64_t mapped = totals[Counter::block_mapped]; mapped != 0)
    add("; mappings showed ", mapped, " of memory");
  const std::uint64_t faulted = totals[Counter::block_faulted];
  const std::uint64_t mappings = totals[Counter::block_mappings],
                      watched = std::min(mappings, totals[Counter::block_watched]);
  // If the library has read nothing from the origin, the origin is mentioned only if the kernel has
  // read nothing for mappings either.
  if (const std::uint64_t fetched = totals[Counter::block_origin];
      fetched != 0 || (faulted == 0 && watched == mappings))
    add("; cubeshim fetched ", fetched, " from the ", job.name_of_origin());
  for (const base::TierKind& tier : base::k_tier_kinds) {
    if (const std::uint64_t bytes = totals[tier.blocks]; bytes != 0)
      add(", ", bytes, " from the ", tier.name);
  }
  if (percent(wasted, totals[Counter::block_ahead]) >= k_told_percent)
    add("; ", wasted, " were fetched ahead in vain");
  // "at least", because pages that the mount dropped between two checks are not counted.
  if (faulted != 0) add("; the kernel read at least ", faulted, " more for mappings");
  if (watched != mappings && faulted == 0)
    append(text, "; what the kernel read for {} of {} mappings is not counted", mappings - watched,
           mappings);
  if (by_kernel != 0)
    add("; ", by_kernel,
        " left to the kernel (memory full: raise CUBESHIM_RAM; or changed while open)");
  // A program that opens a file again for each small piece waits for the mount at each open.
  constexpr std::uint64_t k_many_opens = 100, k_small_piece = 1 << 20;
  const std::uint64_t opens = totals[Counter::large_opens];
  const std::uint64_t seen =
      totals[Counter::block_read] + totals[Counter::block_mapped] + by_kernel + faulted;
  if (opens >= k_many_opens && seen / opens < k_small_piece &&
      std::string_view(job.name_of_origin()) == "mount")
    append(text,
           "; each of their {} opens asked the mount, unless CUBESHIM_MAX_FILE is raised to "
           "their size",
           opens);
  append(text, "\n");
}

// Appends the line for a job that has only listed directories and asked for stats.
void append_metadata(ReportText& text, const JobTotals& job) {
  const auto& totals = job.totals;
  append(text,
         "cubeshim: served: no file opens; {} metadata calls: {} listings, {} stats, {} negative "
         "entries\n",
         job.metadata_answered(), totals[Counter::metadata_listed], totals[Counter::metadata_stats],
         totals[Counter::metadata_negative]);
}

// Appends "cubeshim: object store: 500 GETs brought 28.3 MiB; 11 LISTs".
void append_bucket(ReportText& text, const JobTotals& job) {
  const std::uint64_t gets = job.totals[Counter::bucket_gets],
                      lists = job.totals[Counter::bucket_lists];
  if (gets + lists == 0) return;
  append(text, "cubeshim: object store: {} GET{} brought ", gets, gets == 1 ? "" : "s");
  append_bytes(text, job.totals[Counter::bucket_bytes]);
  append(text, "; {} LIST{}\n", lists, lists == 1 ? "" : "s");
}

void append_vain_fetches(ReportText& text, const JobTotals& job) {
  const std::uint64_t wasted = job.totals[Counter::prefetch_wasted],
                      fetched = job.totals[Counter::prefetch_fetched];
  if (percent(wasted, fetched) < k_told_percent) return;
  append(text,
         "cubeshim: fetched ahead in vain: {} of {} files, dropped before they were opened "
         "(cubeshim docs prefetch)\n",
         wasted, fetched);
}

void append_tiers(ReportText& text, const JobTotals& job) {
  for (std::size_t i = 0; i < base::k_tiers; ++i) {
    if (const std::uint64_t left = job.tiers[i].unwritten; left != 0)
      append(text, "cubeshim: {}: {} files are not written there yet\n", base::k_tier_kinds[i].name,
             left);
  }
  const auto& totals = job.totals;
  const std::uint64_t gets = totals[Counter::cluster_gets], late = totals[Counter::cluster_late];
  const std::uint64_t refused = totals[Counter::cluster_refused],
                      damaged = totals[Counter::cluster_damaged];
  if (percent(late, gets) < 1 && refused + damaged == 0) return;
  append(text, "cubeshim: cluster: {} of {} requests had no answer in time", late, gets);
  if (refused != 0)
    append(text, "; the servers refused {} files (full, or too large for them)", refused);
  if (damaged != 0) append(text, "; {} of their records were damaged", damaged);
  append(text, " (cubeshim docs cluster)\n");
}

}  // namespace

ReportText report_as_text(const JobTotals& job, std::span<const std::string> prefixes) {
  ReportText text;
  if (job.has_seen_nothing()) {
    append(text, "cubeshim: served: nothing");
    append_not_seen(text, "; ", job, prefixes);
    append(text, "\n");
    return text;
  }
  if (job.opens() == 0) {
    append_metadata(text, job);
    append_bucket(text, job);
    return text;
  }
  append_served(text, job);
  append_not_served(text, job, prefixes);
  append_saved(text, job);
  if (job.totals[Counter::large_opens] != 0) append_large_files(text, job);
  append_bucket(text, job);
  append_vain_fetches(text, job);
  append_tiers(text, job);
  return text;
}

}  // namespace cube::cache
