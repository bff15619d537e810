#include "cache/fill/tier_open.h"

#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/base/process/went_out.h"
#include "cache/origin/kept_attributes.h"
#include "cache/region/posix_locks.h"
#include "cache/tier/rights.h"

namespace cube::cache {
namespace {

using base::Counter;

}  // namespace

TierOpen::TierOpen(CacheParts& parts, const OpenRequest& request, Lane lane)
    : Judge(RecordKind::file),
      parts_(parts),
      request_(request),
      origin_(parts.freshness.origin_of(request.key)),
      fill_(parts.ram, parts.rules, request.key, lane) {}

Tier::Verdict TierOpen::judge_immutable(const Record& record) {
  if (record.origin == k_mounts) return Verdict::refused;
  if (record.origin != origin_.id() || record.data_size != record.stat.size)
    return Verdict::outdated;
  stat_ = record.stat;
  is_physical_ = record.is_physical();
  return Verdict::taken;
}

Tier::Verdict TierOpen::judge_mutable(const Record& record) {
  // The rights of a pack's record are not those of the file on the mount, although their stats
  // agree.
  if (record.origin != origin_.id()) return Verdict::outdated;
  if (!has_asked_ && tier_->needs_no_look(record)) {
    stat_ = record.stat;
    is_physical_ = record.is_physical();
    return Verdict::taken;
  }
  if (!has_asked_ && is_known(record)) return Verdict::taken;
  if (!has_asked_) ask(record);
  return judge_by_stat(record);
}

bool TierOpen::is_known(const Record& record) {
  const auto known =
      record.is_physical() ? parts_.freshness.known_stat(request_.key) : std::nullopt;
  if (!known) return false;
  stat_ = known->stat;
  is_physical_ = true;
  if (judge_by_stat(record) != Verdict::taken) return false;
  fill_.note_looked(known->looked_ns);
  return true;
}

void TierOpen::ask(const Record& record) {
  has_asked_ = true;
  is_physical_ = record.is_physical();
  if (!origin_.traits().is_counted_elsewhere) parts_.stats().count(Counter::origin_stats);
  // If the path contained no links, an lstat by the program is answered from the record. So this
  // stat does not follow a link that has replaced the file.
  const std::uint64_t began = base::monotonic_ns();
  if (!origin_.traits().has_kernel_fd) {
    stat_ = origin_.stat(request_.key, request_.path);
  } else {
    const int flags =
        is_physical_ ? AT_SYMLINK_NOFOLLOW | flag_to_ask_server(request_.path) : k_ask_server;
    stat_ = stat_path(AT_FDCWD, request_.path, flags);
  }
  has_waited_ = base::monotonic_ns() - began >= Freshness::k_long_look_ns;
}

Tier::Verdict TierOpen::judge_by_stat(const Record& record) {
  if (!stat_ || record.is_physical() != is_physical_) return Verdict::refused;
  return tier_->judge_by_stat(record, *stat_);
}

bool TierOpen::may_be_opened(const Record& record) {
  if (is_proven_open(record, parts_.region)) return true;
  if (PosixLocks::may_hold_on_device(*stat_)) return false;
  const OriginOpen wish{.key = request_.key,
                        .path = request_.path,
                        .flags = request_.flags,
                        .stats = &parts_.stats()};
  OpenedPlace place;
  return origin_.open(wish, place) && place.opened()->file().stat.is_unchanged_since(*stat_);
}

Tier::Verdict TierOpen::judge(const Record& record) {
  if (record.kind != RecordKind::file) return Tier::Verdict::refused;
  const bool is_immutable = origin_.traits().is_immutable;
  const Verdict verdict = is_immutable ? judge_immutable(record) : judge_mutable(record);
  if (verdict != Verdict::taken) return verdict;
  if (!is_immutable && !may_be_opened(record)) return Verdict::refused;
  // An origin without kernel fds is a bucket or a pack. Its stat identifies the version of the
  // file.
  const bool has_versions = !origin_.traits().has_kernel_fd;
  // On a mount, another node or an earlier job has judged whether the path contained a link. A
  // directory of the path may have become a link since then.
  const bool is_physical = is_physical_ && (has_versions || is_kept_without_links(request_.key));
  switch (fill_.accept({*stat_, is_physical, origin_.id(), is_immutable || has_versions})) {
    case RecordFill::Next::refuse: return Verdict::refused;
    case RecordFill::Next::done: parts_.stats().count(Counter::hits_ram); return Verdict::taken;
    case RecordFill::Next::read: break;
  }
  // After a refusal, the open fetches the file from the origin, with a new stat.
  if (fill_.is_stat_in_doubt()) return Verdict::refused;
  if (is_remote_) {
    fill_.note_from_cluster(record.data_hash);
  } else {
    fill_.note_from_tier(record.data_hash);
  }
  base::copy_bytes(fill_.room(), record.data(), record.data_size);
  if (!fill_.publish()) return Verdict::refused;
  parts_.stats().count(tier_->hits());
  return Verdict::taken;
}

bool TierOpen::visit(const Tiers& tiers) {
  for (Tier* const tier : tiers) {
    tier_ = tier;
    // If the origin's stat has failed, there is no stat to compare.
    if (has_asked_ && !stat_) return false;
    if (tier->visit(request_.key, *this)) return true;
  }
  return false;
}

bool TierOpen::open(OpenOutcome& outcome) {
  bool is_found = visit(parts_.tiers);
  if (!is_found && origin_.id() == k_mounts) {
    is_remote_ = true;
    is_found = visit(parts_.remote);
  }
  outcome.has_waited_for_stat = has_waited_;
  if (is_found) {
    base::note_way_out(base::Way::tier);
    outcome.pin = std::move(fill_.pin());
    if (outcome.pin->is_prefetched())
      parts_.note_opened(*outcome.pin, /*waited_for_prefetch=*/false);
    return true;
  }
  // A signal has ended the program's wait. An open at the origin would start another wait.
  if (!has_asked_ || stat_ || stat_.error().value != EINTR) return false;
  parts_.count_unserved(Counter::bypassed_error, request_.key);
  outcome.error = EINTR;
  return true;
}

}  // namespace cube::cache
