#include "cache/background_fetch.h"

#include "cache/base/hash.h"
#include "cache/recent_misses.h"

namespace cube::cache {

BackgroundFetch::BackgroundFetch(FileCache& cache, std::string_view key, bool use_ring)
    : cache_(&cache),
      key_(key),
      hash_(base::hash_path(key)),
      use_ring_(use_ring),
      fetch_(cache.ram_, cache.rules_, key, use_ring ? Lane::background_with_ring : Lane::background) {}

BackgroundFetch::Begin BackgroundFetch::begin() {
  if (was_just_missed(*cache_->region_, hash_)) return Begin::demanded;
  Pin pin = cache_->ram_.find(key_, hash_);
  if (pin && cache_->needs_no_look(*pin)) {
    if (use_ring_ && cache_->ram_.ring().want_again(*pin)) {
      place_ = cache_->ram_.place_of(*pin);
      wanted_again_ = std::move(pin);
    }
    return Begin::cached;
  }
  pin.release();
  switch (cache_->flights_.begin_prefetch(hash_, ticket_)) {
    case SingleFlight::Prefetch::mine: break;
    case SingleFlight::Prefetch::prefetched: return Begin::cached;  // in a moment
    case SingleFlight::Prefetch::demanded: return Begin::demanded;
  }
  // Another fetch of it may just have ended.
  if (const Pin found = cache_->ram_.find(key_, hash_); found && cache_->needs_no_look(*found)) {
    ticket_ = {};
    return Begin::cached;
  }
  return Begin::fetch;
}

Fetch::Next BackgroundFetch::accept(const FileAtOrigin& file) {
  const Pin pin = cache_->ram_.find(key_, hash_);
  if (pin && file.stat.is_unchanged_since(pin->stat)) {
    fetched_twice_ = cache_->needs_no_look(*pin) && !pin->is_prefetched();
    cache_->ram_.mark_verified(*pin, fetch_.looked_ns());
    return Fetch::Next::done;
  }
  if (pin) cache_->ram_.mark_stale(key_);
  const Fetch::Next next = fetch_.accept(file);
  if (next != Fetch::Next::read || cache_->origin_of(key_).traits().is_whole_in_one_read) return next;
  const auto hash = cache_->fill_from_disk(key_, file.stat, fetch_.room());
  if (!hash) return next;
  fetch_.note_from_disk(*hash);
  // Nobody need read it; where it cannot be shown after all, a program will fetch it.
  publish();
  return Fetch::Next::done;
}

bool BackgroundFetch::publish() {
  // Another fetch may have been quicker, if two turns collided. Nobody would read the second record.
  if (const Pin found = cache_->ram_.find(key_, hash_); found && cache_->needs_no_look(*found)) {
    fetched_twice_ = true;
    return false;
  }
  if (!fetch_.publish()) return false;
  Pin& pin = fetch_.pin();
  place_ = cache_->ram_.place_of(*pin);
  pin.release();
  return true;
}

}  // namespace cube::cache
