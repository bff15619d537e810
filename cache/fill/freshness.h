// May a record be served? It must be of the origin that this process sees at its path, and the
// origin must have been asked as lately as CUBESHIM_CONSISTENCY wants. Thread safety: all of it;
// async-signal-safe.
#pragma once

#include "cache/base/settings/config.h"
#include "cache/origin/known_stats.h"
#include "cache/origin/origins.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

class Freshness {
 public:
  Freshness(Region& region, RamTier& ram, const base::Consistency& consistency);

  // Before anybody opens anything. Until then, and with null, there are only mounts.
  void use_origins(const Origins* origins) {
    origins_ = origins != nullptr && !origins->has_only_mounts() ? origins : nullptr;
  }
  // Before anybody opens anything. Until then no stat is known.
  void use_known_stats(const KnownStats& known) { known_ = &known; }
  // Null: there are only mounts.
  const Origins* origins() const { return origins_; }
  const Origin& origin_of(std::string_view path) const {
    return origins_ != nullptr ? origins_->of(path) : mount_origin();
  }
  bool has_right_origin(const Record& record) const {
    return (origins_ == nullptr && record.origin == k_mounts) ||
           origin_of(record.path()).id() == record.origin;
  }

  // Does the record need no look at the origin before it is served?
  bool needs_no_look(const Record& record) const {
    // The common way: a mount's record that was fetched or checked since this job began is good for
    // this job.
    const bool is_common = origins_ == nullptr && record.origin == k_mounts &&
                           consistency_.kind == base::ConsistencyKind::immutable;
    return is_common ? record.verified_ns.load(std::memory_order_relaxed) >= job_start_ns_
                     : needs_no_look_slow(record);
  }
  // A look at the origin that takes longer is worth that threads make the next ones ahead. A local
  // disk takes 2 us.
  static constexpr std::uint64_t k_long_look_ns = 50'000;

  // The same, or the origin has said so, or is asked. `path`: the key with a terminating zero.
  // `has_waited`: set if the origin took so long. False: nobody finds the record any more.
  bool is_fresh(const Record& record, const char* path, bool& has_waited) {
    return needs_no_look(record) || is_still_right(record, path, has_waited);
  }
  // A stat of a mount's file that the origin has given so lately that it need not be asked again.
  std::optional<KnownStats::Known> known_stat(std::string_view key) const;

 private:
  bool needs_no_look_slow(const Record& record) const;
  bool is_still_right(const Record& record, const char* path, bool& has_waited);
  // Looks at the origin are good for this process from this moment on; base::boot_ns. UINT64_MAX:
  // none is.
  std::uint64_t good_since_ns(std::uint64_t now) const;

  Region* region_;
  RamTier* ram_;
  const Origins* origins_ = nullptr;
  const KnownStats* known_ = nullptr;
  base::Consistency consistency_;
  std::uint64_t job_start_ns_;  // base::boot_ns
};

}  // namespace cube::cache
