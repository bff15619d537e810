#include "cache/fill/background_fill.h"

#include "cache/base/hash.h"
#include "cache/fill/recent_misses.h"

namespace cube::cache {

BackgroundFill::BackgroundFill(CacheParts& parts, std::string_view key, bool use_ring)
    : parts_(&parts),
      key_(key),
      hash_(base::hash_path(key)),
      use_ring_(use_ring),
      fill_(parts.ram, parts.rules, key, use_ring ? Lane::background_with_ring : Lane::background) {}

BackgroundFill::Begin BackgroundFill::begin() {
  if (was_just_missed(parts_->region, hash_)) return Begin::demanded;
  Pin pin = parts_->ram.find(key_, hash_);
  if (pin && parts_->freshness.needs_no_look(*pin)) {
    if (use_ring_ && parts_->ram.ring().want_again(*pin)) {
      place_ = parts_->ram.place_of(*pin);
      wanted_again_ = std::move(pin);
    }
    return Begin::cached;
  }
  pin.release();
  switch (parts_->flights.begin_prefetch(hash_, ticket_)) {
    case SingleFlight::Prefetch::mine: break;
    case SingleFlight::Prefetch::prefetched: return Begin::cached;  // in a moment
    case SingleFlight::Prefetch::demanded: return Begin::demanded;
  }
  // Another fetch of it may just have ended.
  if (const Pin found = parts_->ram.find(key_, hash_); found && parts_->freshness.needs_no_look(*found)) {
    ticket_ = {};
    return Begin::cached;
  }
  return Begin::fetch;
}

RecordFill::Next BackgroundFill::accept(const FileAtOrigin& file) {
  const Pin pin = parts_->ram.find(key_, hash_);
  if (pin && file.stat.is_unchanged_since(pin->stat)) {
    fetched_twice_ = parts_->freshness.needs_no_look(*pin) && !pin->is_prefetched();
    parts_->ram.mark_verified(*pin, fill_.looked_ns());
    return RecordFill::Next::done;
  }
  if (pin) parts_->ram.mark_stale(key_);
  const RecordFill::Next next = fill_.accept(file);
  if (next != RecordFill::Next::read || parts_->freshness.origin_of(key_).traits().is_whole_in_one_read) return next;
  const auto from_tier = parts_->fill_from_tier(key_, file.stat, fill_.room());
  if (!from_tier) return next;
  fill_.note_from_tier(from_tier->data_hash);
  // Nobody need read it; where it cannot be shown after all, a program will fetch it.
  publish();
  return RecordFill::Next::done;
}

bool BackgroundFill::publish() {
  // Another fetch may have been quicker, if two turns collided. Nobody would read the second record.
  if (const Pin found = parts_->ram.find(key_, hash_); found && parts_->freshness.needs_no_look(*found)) {
    fetched_twice_ = true;
    return false;
  }
  if (!fill_.publish()) return false;
  Pin& pin = fill_.pin();
  place_ = parts_->ram.place_of(*pin);
  pin.release();
  return true;
}

}  // namespace cube::cache
