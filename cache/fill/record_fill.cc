#include "cache/fill/record_fill.h"

#include <algorithm>
#include <cerrno>

#include "cache/base/clock.h"
#include "cache/base/hash.h"
#include "cache/base/memory/off_stack.h"
#include "cache/origin/kept_attributes.h"
#include "cache/record/recent_change.h"

namespace cube::cache {
namespace {

using base::Counter;

// A file that was changed this recently may be changed again with the same mtime, because the mtime
// is coarse or because clocks differ.
constexpr std::uint64_t k_recent_seconds = 60;
// FUSE and the page cache read this much with one request, so a larger file may change between two
// requests. Without a second stat, a mixture of two versions could be kept for the whole job.
constexpr std::uint64_t k_one_request = 128 << 10;

bool is_recent(const FileTime& time, std::uint64_t now_ns, std::uint64_t seconds) {
  const auto now = static_cast<std::int64_t>(now_ns / 1'000'000'000ULL);
  const std::int64_t age = now > time.seconds ? now - time.seconds : time.seconds - now;
  return age < static_cast<std::int64_t>(seconds);
}

}  // namespace

RecordFill::RecordFill(RamTier& tier, const FillRules& rules, std::string_view key, Lane lane)
    : tier_(&tier), rules_(rules), lane_(lane), watch_(tier.region()), began_ns_(base::wall_ns()) {
  content_.path = key;
  content_.prefetched = lane == Lane::background || lane == Lane::background_with_ring;
  content_.fetched_ns = began_ns_;
  content_.verified_ns = base::boot_ns();
}

void RecordFill::note_looked(std::uint64_t looked_ns) {
  const std::uint64_t age = content_.verified_ns - std::min(content_.verified_ns, looked_ns);
  content_.verified_ns -= age;
  began_ns_ -= std::min(began_ns_, age);
}

bool RecordFill::begin_watch(const FileStat& stat, int fd) {
  // Must precede the check for writers. A process that opens the file later, by another path,
  // reports its writes only if the device is known.
  tier_->note_device(stat.device());
  return watch_.watch(stat, fd);
}

bool RecordFill::watch(const FileStat& stat) {
  is_watched_ = begin_watch(stat, -1) && !watch_.is_stat_in_doubt();
  return is_watched_;
}

RecordFill::Next RecordFill::accept(const FileAtOrigin& file) {
  const FileStat& stat = file.stat;
  const auto refused = [&](Counter reason) {
    refuse(reason);
    return Next::refuse;
  };
  if (!stat.is_regular() || file.is_private) return refused(Counter::bypassed_kind);
  if (stat.size > rules_.max_file) return refused(Counter::bypassed_size);
  if (!std::exchange(is_watched_, false) && !begin_watch(stat, file.fd))
    return refused(Counter::bypassed_busy);
  content_.stat = stat;
  content_.physical = file.is_physical;
  content_.origin = file.origin;
  is_immutable_ = file.is_immutable;
  pin_ = tier_->adopt(content_, base::hash_path(content_.path));
  if (pin_) return Next::done;
  if (tier_->has_many_names(stat)) return refused(Counter::bypassed_names);
  // If files may change during the job, a file that was written just now is not cached yet, because
  // a second write may leave its mtime unchanged.
  const bool may_change = rules_.consistency != base::ConsistencyKind::immutable && !is_immutable_;
  if (may_change && is_recent(stat.modified, began_ns_, static_cast<std::uint64_t>(k_racy_seconds)))
    return refused(Counter::bypassed_busy);
  // In every mode, a file is not cached if a second change could leave its stat unchanged, so that
  // neither this job nor the next would detect the change.
  if (!is_immutable_ && may_hide_change(stat, began_ns_)) return refused(Counter::bypassed_busy);
  auto reservation = reserve(stat.size);
  if (!reservation)
    return refused(reservation.error().value == EFBIG ? Counter::bypassed_size
                                                      : Counter::bypassed_full);
  reservation_ = std::move(*reservation);
  if (file.fd >= 0 && !is_immutable_) drop_pages_of_fuse(file.fd, stat);
  return Next::read;
}

base::Result<RamTier::Reservation> RecordFill::reserve(std::uint64_t size) {
  const std::size_t path_length = content_.path.size();
  if (lane_ == Lane::demand) return tier_->reserve(path_length, size);
  const bool has_ring = lane_ != Lane::background;
  if (!tier_->is_full()) {
    auto resident = tier_->reserve(path_length, size);
    if (resident || !has_ring) return resident;
  }
  if (lane_ == Lane::demand_with_ring) return tier_->reserve_shared(path_length, size);
  if (lane_ == Lane::background_with_ring) return tier_->reserve_in_ring(path_length, size);
  return base::fail(ENOSPC);
}

bool RecordFill::wants_second_look() const {
  if (is_immutable_) return false;
  const FileStat& stat = content_.stat;
  return watch_.is_stat_in_doubt() || stat.size > k_one_request ||
         is_recent(stat.modified, began_ns_, k_recent_seconds) ||
         is_recent(stat.changed, began_ns_, k_recent_seconds);
}

Pin RecordFill::show_head() {
  Pin pin = tier_->write_head(reservation_, content_);
  // Uses the path in the record from now on, because the key may be destroyed before this object.
  content_.path = pin->path();
  return pin;
}

// Whether the path still leads to the file. If a path of the node has changed since the last check,
// asks the server. A prefetch must not wait here, so it gives up.
bool RecordFill::has_path() {
  if (watch_.are_paths_unchanged() || is_immutable_) return true;
  base::OffStack path;
  const bool may_wait = lane_ == Lane::demand || lane_ == Lane::demand_with_ring;
  if (!may_wait || !path || content_.path.size() >= base::OffStack::k_bytes) return false;
  *std::copy(content_.path.begin(), content_.path.end(), path.data()) = '\0';
  watch_.renew_paths();
  tier_->region().stats().count(Counter::origin_stats);
  // If the path had no link at its end, it must not have one now. Links elsewhere in the path are
  // the same, because is_content_unchanged() would notice a change.
  const int flags = k_ask_server | (content_.physical ? AT_SYMLINK_NOFOLLOW : 0);
  const auto now = stat_path(AT_FDCWD, path.data(), flags);
  return now && now->is_unchanged_since(content_.stat);
}

bool RecordFill::publish() {
  // Checks for changes while the room can still be given back: as soon as the record is in the
  // index, other processes may find it.
  if (!has_path() || !watch_.is_content_unchanged()) return refuse(Counter::bypassed_busy);
  auto pin = tier_->publish(reservation_, content_);
  if (!pin)
    return refuse(pin.error().value == EMLINK ? Counter::bypassed_names : Counter::bypassed_full);
  // A change that is made after this check marks the record.
  if (!has_path() || !watch_.is_content_unchanged() ||
      !tier_->confirm(std::move(reservation_), *pin)) {
    // The record will never be confirmed. The mark frees the record's slots in the index, and keeps
    // the ring from waiting for it.
    tier_->mark_record_stale(**pin);
    return refuse(Counter::bypassed_busy);
  }
  pin_ = std::move(*pin);
  return true;
}

}  // namespace cube::cache
