#include "cache/report/progress.h"

#include <algorithm>

#include "cache/report/figures.h"

namespace cube::cache {
namespace {

using base::Counter;

double percent_of(double part, double whole) { return whole == 0 ? 0 : 100 * part / whole; }

// The number of opens, and of reads of large files.
std::uint64_t asked(const JobTotals& rise) {
  return rise.opens() + rise.totals[Counter::block_hits] + rise.totals[Counter::block_misses];
}

// The number of files and reads that have added something to the cache.
std::uint64_t added(const JobTotals& rise) {
  std::uint64_t sum = rise.totals[Counter::misses] + rise.totals[Counter::prefetch_fetched] +
                      rise.totals[Counter::block_misses];
  for (const base::TierKind& kind : base::k_tier_kinds) sum += rise.totals[kind.hits];
  return sum;
}

// Whether fewer than one in a hundred opens and reads have added something to the cache. If so, the
// first epoch is over, or the memory is full.
bool has_filled(const JobTotals& rise) { return added(rise) * 100 < asked(rise); }

// The most frequent reason for opens that were not served. Null: only a few opens were not served.
const Bypassed* main_reason(const JobTotals& rise) {
  const auto* const most = std::max_element(
      std::begin(k_bypassed), std::end(k_bypassed), [&](const Bypassed& a, const Bypassed& b) {
        return rise.totals[a.counter] < rise.totals[b.counter];
      });
  return rise.totals[most->counter] * 10 < rise.opens() ? nullptr : most;
}

// Appends the reason why the job is slower than it would be with all files in the cache.
void append_brake(ReportText& text, const JobTotals& rise) {
  const auto waited =
      static_cast<double>(rise.totals[Counter::miss_ns] + rise.totals[Counter::slow_hit_ns]);
  const Bypassed* const reason = rise.opens() == 0 ? nullptr : main_reason(rise);
  if (reason != nullptr) {
    append(text, "; {} not served: {}", rise.totals[reason->counter], reason->reason);
  } else if (waited * 10 > 1e6 * static_cast<double>(rise.milliseconds)) {
    append(text, "; waited ");
    append_time(text, waited);
    append(text, " for it");
    if (rise.totals[Counter::prefetch_fetched] == 0)
      append(text, " (nothing announces which files come next)");
  }
  if (has_filled(rise)) append(text, "; almost nothing new is cached: this is the last line");
}

}  // namespace

ReportText progress_text(const JobTotals& before, const JobTotals& now) {
  const JobTotals rise = now.since(before);
  ReportText text;
  append(text, "cubeshim: ");
  append_time(text, 1e6 * static_cast<double>(now.milliseconds));
  append(text, ": ");
  if (const std::uint64_t opens = rise.opens(); opens != 0)
    append(text, "{} opens, {:.0f} % from the cache; ", opens,
           percent_of(static_cast<double>(rise.hits()), static_cast<double>(opens)));
  const std::uint64_t hits = rise.totals[Counter::block_hits],
                      reads = hits + rise.totals[Counter::block_misses];
  if (reads != 0)
    append(text, "{} reads of large files, {:.0f} % from memory; ", reads,
           percent_of(static_cast<double>(hits), static_cast<double>(reads)));
  append_bytes(text, now.ram_used);
  append(text, " cached ({:.0f} % of the room)",
         percent_of(static_cast<double>(now.ram_used), static_cast<double>(now.ram_capacity)));
  append(text, "; {} ", now.name_of_origin());
  if (const auto miss = rise.ns_of_miss(); miss) {
    append_time(text, *miss);
    append(text, " a file");
  } else {
    append(text, "not waited for");
  }
  append_brake(text, rise);
  append(text, "\n");
  return text;
}

ReportText Progress::look(Region& region, std::uint32_t job, std::uint64_t now_ns) {
  // Pairs with the release below. Another thread may call look() at the same time, such as a thread
  // that was left behind.
  if (is_busy_.exchange(true, std::memory_order_acquire)) return {};
  ReportText text = look_alone(region, job, now_ns);
  is_busy_.store(false, std::memory_order_release);
  return text;
}

ReportText Progress::look_alone(Region& region, std::uint32_t job, std::uint64_t now_ns) {
  if (is_over_ || now_ns < next_ns_) return {};
  // The first interval has no line, because it may be too short; but if every_ns_ is 0, the caller
  // times the intervals.
  const bool is_first = next_ns_ == 0 && every_ns_ != 0;
  next_ns_ = now_ns + every_ns_;
  const JobTotals now = collect(region, job);
  const JobTotals rise = now.since(before_);
  ReportText text;
  if (!is_first && asked(rise) != 0) {
    append(text, "\x1b[2K\r{}", progress_text(before_, now).view());
    is_over_ = has_filled(rise);
  }
  before_ = now;
  return text;
}

}  // namespace cube::cache
