// RecordFill does the cache's part of one fetch and no I/O. Its caller, an open or the prefetch
// engine, opens and reads the file:
//   RecordFill made -> (the file is opened) -> accept -> (its bytes are read to room()) -> (its
//   stat is asked again) -> publish
// The caller asks for the stat again if wants_second_look(). Thread safety: one thread at a time.
// Dropped before publish, it leaves nothing behind.
#pragma once

#include <string_view>

#include "cache/base/settings/config.h"
#include "cache/fill/change_watch.h"
#include "cache/origin/origin.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

struct FillRules {
  std::uint64_t max_file = 0;  // bytes
  std::uint64_t block = 0;  // bytes; of files larger than max_file; 0: they are left to the kernel
  base::ConsistencyKind consistency = base::ConsistencyKind::immutable;
};

// The one that waits for the fetch, and whether it may go to the ring if nothing else has room. In
// the background what is fetched is noted as such.
enum class Lane : std::uint8_t { demand, demand_with_ring, background, background_with_ring };

class RecordFill {
 public:
  enum class Next {
    read,   // the whole file to room()
    done,   // no need to: pin() has what another view has fetched
    refuse  // not for caching; reason() says why
  };

  // Before the file is opened. `key` must outlive this.
  RecordFill(RamTier& tier, const FillRules& rules, std::string_view key, Lane lane = Lane::demand);

  // The stat is what the origin has just said; accept() is to watch the file no later than from
  // here on. False: somebody may have it open for writing, or had until now.
  bool watch(const FileStat& stat);
  // The stat that accept() is to get is of a look at the origin that was made then (base::boot_ns),
  // before this was made.
  void note_looked(std::uint64_t looked_ns);
  // The next accept() is of a later look.
  void end_watch() { is_watched_ = false; }
  // The file that the path led to.
  Next accept(const FileAtOrigin& file);
  std::byte* room() const { return reservation_.data(); }
  // For bytes that come in parts (partial_fill.h): the record's head is written to its room, where
  // nobody finds it. A claim on it.
  Pin show_head();
  // Nothing of the room is lost if it is given back.
  bool can_be_undone() const { return reservation_.can_be_undone(); }
  // Has anything changed the file through the shim since this began?
  bool is_unchanged() const { return watch_.is_unchanged(); }
  RamTier& tier() const { return *tier_; }
  // In a forked child: the room is the parent's.
  void abandon() { reservation_.abandon(); }
  // The bytes in room() were checked by this hash.
  void note_hash(std::uint64_t data_hash) { content_.data_hash = data_hash; }
  // The same, and it has come from a tier.
  void note_from_tier(std::uint64_t data_hash) {
    content_.from_disk = true;
    note_hash(data_hash);
  }
  // The same, from another node.
  void note_from_cluster(std::uint64_t data_hash) {
    content_.from_cluster = true;
    note_hash(data_hash);
  }
  // Must the file be found unchanged after the read? It must if its times, or the way in which it
  // is read, prove nothing.
  bool wants_second_look() const;
  // May the stat be from before the last write? Then bytes of a tier that belong to it prove
  // nothing either.
  bool is_stat_in_doubt() const { return !is_immutable_ && watch_.is_stat_in_doubt(); }
  // Shows it to all. False: refused after all.
  bool publish();

  // The room may still be written to by others, and nobody knows for how long.
  void lose_room() { reservation_.lose(); }

  base::Counter reason() const { return reason_; }
  // Nothing that it sees of the origin is older; base::boot_ns.
  std::uint64_t looked_ns() const { return content_.verified_ns; }
  Pin& pin() { return pin_; }

 private:
  bool begin_watch(const FileStat& stat, int fd);
  bool refuse(base::Counter reason) {
    reason_ = reason;
    return false;
  }

  base::Result<RamTier::Reservation> reserve(std::uint64_t size);

  RamTier* tier_;
  FillRules rules_;
  Lane lane_;
  ChangeWatch watch_;
  std::uint64_t began_ns_;  // wall clock; no look at the origin is older
  RecordContent content_;
  bool is_watched_ = false;
  bool is_immutable_ = false;  // of the origin
  RamTier::Reservation reservation_;
  Pin pin_;
  base::Counter reason_ = base::Counter::bypassed_busy;
};

}  // namespace cube::cache
