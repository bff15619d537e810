#include "cache/fill/background_fill.h"

#include <algorithm>

#include "cache/base/hash.h"
#include "cache/base/memory/copy_bytes.h"
#include "cache/fill/recent_misses.h"
#include "cache/origin/kept_attributes.h"
#include "cache/tier/rights.h"

namespace cube::cache {

BackgroundFill::BackgroundFill(CacheParts& parts, std::string_view key, bool use_ring)
    : parts_(&parts),
      key_(key),
      hash_(base::hash_path(key)),
      use_ring_(use_ring),
      fill_(parts.ram, parts.rules, key, use_ring ? Lane::background_with_ring : Lane::background) {
}

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
    case SingleFlight::Prefetch::prefetched: return Begin::cached;  // or soon in RAM
    case SingleFlight::Prefetch::demanded: return Begin::demanded;
  }
  // Another fetch of the file may just have ended.
  if (const Pin found = parts_->ram.find(key_, hash_);
      found && parts_->freshness.needs_no_look(*found)) {
    ticket_ = {};
    return Begin::cached;
  }
  return Begin::fetch;
}

bool BackgroundFill::is_there(const FileStat& stat) {
  const Pin pin = parts_->ram.find(key_, hash_);
  if (!pin) return false;
  if (!stat.is_unchanged_since(pin->stat)) {
    parts_->ram.mark_stale(key_);
    return false;
  }
  fetched_twice_ = parts_->freshness.needs_no_look(*pin) && !pin->is_prefetched();
  parts_->ram.mark_verified(*pin, fill_.looked_ns());
  return true;
}

// Checks a record of another node, and publishes it on this node if it is right.
class BackgroundFill::FromRemote final : public Tier::Judge {
 public:
  FromRemote(BackgroundFill& fill, const FileStat* stat, std::uint64_t most_bytes)
      : Judge(RecordKind::file, For::many), own_(fill), stat_(stat), most_bytes_(most_bytes) {}

  Remote ask(const Tiers& tiers) {
    for (Tier* const tier : tiers) {
      tier_ = tier;
      if (tier->visit(own_.key_, *this) || found_ != Remote::absent) break;
    }
    return found_;
  }

 private:
  Tier::Verdict judge(const Record& record) override {
    if (record.kind != RecordKind::file || record.data_size > most_bytes_)
      return Tier::Verdict::refused;
    if (stat_ == nullptr && !tier_->needs_no_look(record)) return end(Remote::look);
    if (stat_ != nullptr) {
      const Tier::Verdict verdict = tier_->judge_by_stat(record, *stat_);
      if (verdict != Tier::Verdict::taken) return verdict;
    }
    const FileStat& stat = stat_ != nullptr ? *stat_ : record.stat;
    if (!is_proven_open(record, own_.parts_->region)) {
      own_.is_to_be_proven_ = true;
      return Tier::Verdict::refused;
    }
    own_.remote_bytes_ = record.data_size;
    // For the other node, the path may have contained other links.
    const bool is_physical = record.is_physical() && is_kept_without_links(own_.key_);
    switch (own_.fill_.accept({stat, is_physical, k_mounts, /*is_immutable=*/false})) {
      case RecordFill::Next::refuse: return end(Remote::refused);
      case RecordFill::Next::done: found_ = Remote::there; return Tier::Verdict::taken;
      case RecordFill::Next::read: break;
    }
    if (own_.fill_.is_stat_in_doubt()) return Tier::Verdict::refused;
    base::copy_bytes(own_.fill_.room(), record.data(), record.data_size);
    own_.fill_.note_from_cluster(record.data_hash);
    if (!own_.publish()) return end(Remote::refused);
    found_ = Remote::published;
    return Tier::Verdict::taken;
  }
  Tier::Verdict end(Remote how) {
    found_ = how;
    return Tier::Verdict::refused;
  }

  BackgroundFill& own_;
  const FileStat* stat_;
  const std::uint64_t most_bytes_;
  Tier* tier_ = nullptr;  // the tier that is being asked
  Remote found_ = Remote::absent;
};

bool BackgroundFill::may_be_remote() const {
  return !parts_->remote.is_empty() && parts_->freshness.origin_of(key_).id() == k_mounts;
}

BackgroundFill::Remote BackgroundFill::take_remote(const FileStat* stat, std::uint64_t most_bytes) {
  const auto& changes = parts_->region.header().file_changes;
  most_bytes = std::min(most_bytes, parts_->rules.max_file);
  if (stat == nullptr) {
    if (std::ranges::none_of(parts_->remote, [&](Tier* tier) { return tier->may_answer(key_); }))
      return Remote::absent;
    changes_ = changes.load(std::memory_order_seq_cst);
    if (std::ranges::none_of(parts_->remote,
                             [](const Tier* tier) { return tier->may_need_no_look(); }))
      return Remote::look;
  } else {
    // Only regular files are fetched from another node. If the path is a link, `stat` is the stat
    // of the link itself.
    if (!stat->is_regular() || stat->size > most_bytes) return Remote::absent;
    if (is_there(*stat)) return Remote::there;
    // Does not ask other nodes if a writer has ended since the stat was requested, because the stat
    // may be outdated then. The remote answer can take a long time.
    if (!fill_.watch(*stat) || changes.load(std::memory_order_seq_cst) != changes_) return absent();
  }
  has_asked_remote_ = true;
  const Remote found = FromRemote(*this, stat, most_bytes).ask(parts_->remote);
  return found == Remote::absent ? absent() : found;
}

// Ends the watch, because the caller asks the origin for a new stat.
BackgroundFill::Remote BackgroundFill::absent() {
  fill_.end_watch();
  return Remote::absent;
}

void BackgroundFill::give_up() {
  ticket_ = {};
  if (!std::exchange(has_asked_remote_, false)) return;
  for (Tier* const tier : parts_->remote) tier->note_not_fetched(key_);
}

RecordFill::Next BackgroundFill::accept(const FileAtOrigin& file) {
  if (is_there(file.stat)) return RecordFill::Next::done;
  const RecordFill::Next next = fill_.accept(file);
  // The open of a packed file has already read its bytes.
  if (next != RecordFill::Next::read ||
      (parts_->freshness.origin_of(key_).traits().is_whole_in_one_read && !file.can_fill_ahead))
    return next;
  if (fill_.is_stat_in_doubt()) return next;
  const auto from_tier = parts_->fill_from_tier(key_, file.stat, fill_.room(), is_to_be_proven_);
  if (!from_tier) return next;
  from_tier->is_remote ? fill_.note_from_cluster(from_tier->data_hash)
                       : fill_.note_from_tier(from_tier->data_hash);
  // If publish() fails, the caller does not read the file either: the next program that opens it
  // will fetch it.
  publish();
  return RecordFill::Next::done;
}

bool BackgroundFill::take_filled() {
  const Pin pin = parts_->ram.find_of_origin(parts_->freshness.origin_of(key_).id(),
                                             RecordKind::file, key_, hash_);
  if (!pin) return false;
  parts_->ram.show_to_own_view(*pin);
  note_published(pin);
  return true;
}

void BackgroundFill::note_published(const Pin& pin) {
  place_ = parts_->ram.place_of(*pin);
  has_asked_remote_ = false;
  for (Tier* const tier : parts_->remote) tier->note_fetched(key_, pin);
}

bool BackgroundFill::publish() {
  // If two flights have collided, another fetch may already have published a record. No program
  // would read a second record.
  if (const Pin found = parts_->ram.find(key_, hash_);
      found && parts_->freshness.needs_no_look(*found)) {
    fetched_twice_ = true;
    return false;
  }
  if (!fill_.publish()) return false;
  note_published(fill_.pin());
  fill_.pin().release();
  return true;
}

}  // namespace cube::cache
