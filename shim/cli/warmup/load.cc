#include "shim/cli/warmup/load.h"

#include <algorithm>

#include "shim/cli/interrupt.h"

namespace cube::cli {
namespace {

constexpr std::uint64_t k_look_ns = 100'000'000;  // the interval of checks of progress and signals
constexpr unsigned k_patience_ms = 2000;          // the wait for fetches after an interrupt

// The census does not count files of directories in a list, because such a directory is recognized
// only when it is opened.
Tally tally_of(const prefetch::PrefetchCounts& counts, std::uint64_t directories,
               const Census* census, bool all_is_offered) {
  Tally tally;
  tally.files = counts.fetched + counts.cached + counts.demanded + counts.refused - directories;
  tally.bytes = counts.fetched_bytes;
  tally.measured_files = counts.measured;
  tally.bytes_to_come = counts.bytes_to_come;
  tally.has_large = counts.large != 0 || counts.measured != 0;
  tally.is_bytes_final = all_is_offered && counts.unmeasured == 0;
  if (census == nullptr) return tally;
  tally.total_files =
      std::max(census->files() - std::min(directories, census->files()), tally.files);
  tally.is_total_final = census->is_over() && directories == 0;
  return tally;
}

}  // namespace

prefetch::PrefetchCounts load(NamedPaths& paths, prefetch::Prefetcher& prefetcher,
                              const Census* census, Skipped& skipped, Progress& progress) {
  prefetch::PlannedFile file;
  bool has_file = false, all_is_offered = false;
  std::uint64_t directories = 0;
  while (interrupted_by() == 0) {
    const std::uint32_t seen = prefetcher.progress().now();
    prefetcher.look_for_hangs();
    // This check precedes take_refused(), because the last refusal arrives before its fetch ends.
    const bool was_idle = prefetcher.is_idle();
    const auto refused = prefetcher.take_refused();
    for (const auto& one : refused) {
      if (one.why == prefetch::Refused::directory) ++directories;
      skipped.add(paths, one);
    }
    // The number of offers is limited. Otherwise, fetches that end immediately (for example, for
    // lack of room) would keep this loop busy to the end of the list.
    constexpr int k_at_once = 1024;
    int offered = 0;
    while (offered < k_at_once && interrupted_by() == 0) {
      all_is_offered = !has_file && !paths.next(file);
      if (all_is_offered) break;
      has_file = !prefetcher.offer(file);
      if (has_file) break;
      ++offered;
    }
    if (was_idle && offered == 0 && !has_file && refused.empty()) break;
    progress.show(tally_of(prefetcher.counts(), directories, census, all_is_offered));
    if (!was_idle && offered < k_at_once) prefetcher.progress().wait(seen, k_look_ns);
  }
  prefetcher.stop(k_patience_ms);
  for (const auto& one : prefetcher.take_refused()) skipped.add(paths, one);
  return prefetcher.counts();
}

}  // namespace cube::cli
