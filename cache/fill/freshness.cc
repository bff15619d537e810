#include "cache/fill/freshness.h"

#include <cerrno>

#include "cache/base/clock.h"
#include "cache/region/last_changes.h"

namespace cube::cache {

using base::ConsistencyKind;

Freshness::Freshness(Region& region, RamTier& ram, const base::Consistency& consistency)
    : region_(&region),
      ram_(&ram),
      consistency_(consistency),
      job_start_ns_(region.job_row(region.own_job()).started_ns),
      doubted_ns_(&region.header().doubted_ns) {}

bool Freshness::needs_no_look_slow(const Record& record) const {
  if (origins_ != nullptr || record.origin != k_mounts) {
    const Origin& origin = origin_of(record.path());
    // A process may use the record only if it has the record's origin at this path.
    if (origin.id() != record.origin) return false;
    if (origin.traits().is_immutable) return true;
  }
  const std::uint64_t verified = record.verified_ns.load(std::memory_order_relaxed),
                      now = base::boot_ns();
  return (consistency_.kind == ConsistencyKind::immutable || now >= verified) &&
         verified >= good_since_ns(now);
}

std::uint64_t Freshness::good_since_ns(std::uint64_t now) const {
  switch (consistency_.kind) {
    // A record that was fetched or revalidated since this job began is valid for the whole job.
    case ConsistencyKind::immutable: return good_in_job_ns();
    case ConsistencyKind::ttl: {
      const std::uint64_t ttl = consistency_.ttl_seconds * 1'000'000'000ULL;
      if (ttl == 0) break;
      return std::max(now < ttl ? 0 : now - ttl + 1, doubted_ns_->load(std::memory_order_relaxed));
    }
    case ConsistencyKind::open: break;
  }
  return UINT64_MAX;
}

std::optional<KnownStats::Known> Freshness::known_stat(std::string_view key) const {
  if (known_ == nullptr || origins_ != nullptr) return {};
  return known_->known_stat(key, good_since_ns(base::boot_ns()));
}

bool Freshness::is_still_right(const Record& record, const char* path, bool& has_waited) {
  // If the path contains a link, the gathered stat of the path proves nothing about the file.
  const auto known = record.is_physical() ? known_stat(record.path()) : std::nullopt;
  if (known && known->stat.is_unchanged_since(record.stat)) {
    ram_->mark_verified(record, known->looked_ns);
    return true;
  }
  const Origin& origin = origin_of(record.path());
  if (!origin.traits().is_counted_elsewhere) region_->stats().count(base::Counter::origin_stats);
  const std::uint64_t now = base::boot_ns();
  const auto current = origin.revalidate(record.path(), path, record.stat);
  has_waited = base::boot_ns() - now >= k_long_look_ns;
  if (current && current->is_unchanged_since(record.stat)) {
    if (consistency_.kind != base::ConsistencyKind::open) ram_->mark_verified(record, now);
    return true;
  }
  const auto is_gone = [&] {
    if (current) return !current->same_file(record.stat);
    return current.error().value == ENOENT || current.error().value == ESTALE;
  };
  std::uint32_t how = Record::k_changed;
  if (is_gone()) {
    how = Record::k_gone;
    if (record.has_only_this_name()) note_last_change(*region_, record.stat, how);
  }
  const bool is_replaced = current && !current->same_file(record.stat);
  ram_->mark_stale(record.path(), how, is_replaced ? &*current : nullptr);
  return false;
}

}  // namespace cube::cache
