// Decides whether a record may be served. The record must come from the origin that this process
// has at the record's path, and must have been revalidated recently enough. CUBESHIM_CONSISTENCY
// defines how recently. Thread-safe and async-signal-safe.
#pragma once

#include "cache/base/settings/config.h"
#include "cache/origin/known_stats.h"
#include "cache/origin/origins.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

class Freshness {
 public:
  Freshness(Region& region, RamTier& ram, const base::Consistency& consistency);

  // Call it before the first open. Until then, or if `origins` is null, all origins are mounts.
  void use_origins(const Origins* origins) {
    origins_ = origins != nullptr && !origins->has_only_mounts() ? origins : nullptr;
  }
  // Call it before the first open. Until then, no recent stats are used.
  void use_known_stats(const KnownStats& known) { known_ = &known; }
  // Null: all origins are mounts.
  const Origins* origins() const { return origins_; }
  const Origin& origin_of(std::string_view path) const {
    return origins_ != nullptr ? origins_->of(path) : mount_origin();
  }

  // Whether the record may be served without revalidation.
  bool needs_no_look(const Record& record) const {
    // The common case: a record of a mount that was fetched or revalidated since this job began.
    const bool is_common = origins_ == nullptr && record.origin == k_mounts &&
                           consistency_.kind == base::ConsistencyKind::immutable;
    return is_common ? record.verified_ns.load(std::memory_order_relaxed) >= good_in_job_ns()
                     : needs_no_look_slow(record);
  }
  // If revalidations take longer than this, background threads should revalidate records ahead of
  // the program. On a local disk, a revalidation takes 2 us.
  static constexpr std::uint64_t k_long_look_ns = 50'000;

  // Whether the record may be served. Revalidates the record if needed. `path`: the key with a
  // terminating zero. `has_waited` is set if the revalidation took k_long_look_ns or more. False:
  // the record is outdated, and lookups no longer find it.
  bool is_fresh(const Record& record, const char* path, bool& has_waited) {
    return needs_no_look(record) || is_still_right(record, path, has_waited);
  }
  // The stat of a file on a mount, if the origin has returned it recently enough for it to be used
  // again.
  std::optional<KnownStats::Known> known_stat(std::string_view key) const;

 private:
  // A record that was revalidated at or after this time is valid for the rest of the job.
  std::uint64_t good_in_job_ns() const {
    return std::max(job_start_ns_, doubted_ns_->load(std::memory_order_relaxed));
  }
  bool needs_no_look_slow(const Record& record) const;
  bool is_still_right(const Record& record, const char* path, bool& has_waited);
  // A record that was revalidated at or after this time (base::boot_ns) may be served to this
  // process. UINT64_MAX: every record must be revalidated first.
  std::uint64_t good_since_ns(std::uint64_t now) const;

  Region* region_;
  RamTier* ram_;
  const Origins* origins_ = nullptr;
  const KnownStats* known_ = nullptr;
  base::Consistency consistency_;
  std::uint64_t job_start_ns_;  // base::boot_ns
  const std::atomic<std::uint64_t>* doubted_ns_;
};

}  // namespace cube::cache
