// The cache's part of one fetch, without the I/O. Its caller, an open or the prefetch engine, opens
// and reads the file:
//   RecordFill made -> (the file is opened) -> accept -> (its bytes are read to room()) -> (its
//   stat is asked again) -> publish
// The caller asks for the stat again if wants_second_look(). Thread safety: one thread at a time.
// If it is destroyed before publish, no trace of it remains.
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

// Whether a program waits for the fetch (demand) or none does (background), and whether the record
// may go to the ring if there is no other room. Records of the background lanes are marked as
// prefetched.
enum class Lane : std::uint8_t { demand, demand_with_ring, background, background_with_ring };

class RecordFill {
 public:
  enum class Next {
    read,   // the whole file to room()
    done,   // no need to read: pin() holds the record that another view has fetched
    refuse  // the file is not cached; reason() says why
  };

  // Constructed before the file is opened. `key` must outlive this.
  RecordFill(RamTier& tier, const FillRules& rules, std::string_view key, Lane lane = Lane::demand);

  // Begins to watch the file early, with a stat that the origin has just given; accept() then need
  // not. False: a process may have the file open for writing, or had it open until just now.
  bool watch(const FileStat& stat);
  // If the stat for accept() was requested before this object was constructed, notes when
  // (base::boot_ns).
  void note_looked(std::uint64_t looked_ns);
  // The next accept() gets a later stat, and watches the file again.
  void end_watch() { is_watched_ = false; }
  // Accepts or refuses the file that the path led to.
  Next accept(const FileAtOrigin& file);
  std::byte* room() const { return reservation_.data(); }
  // Writes the record's head to its room, unpublished, if the bytes arrive in parts
  // (partial_fill.h). Returns a pin on the record.
  Pin show_head();
  // Whether the room can be given back without loss.
  bool can_be_undone() const { return reservation_.can_be_undone(); }
  // Whether nothing has changed the file through the shim since construction.
  bool is_unchanged() const { return watch_.is_unchanged(); }
  RamTier& tier() const { return *tier_; }
  // In a forked child: forgets the room, which is the parent's.
  void abandon() { reservation_.abandon(); }
  // The bytes in room() were checked by this xxh3.
  void note_hash(std::uint64_t data_hash) { content_.data_hash = data_hash; }
  // Like note_hash, for bytes that came from a tier.
  void note_from_tier(std::uint64_t data_hash) {
    content_.from_disk = true;
    note_hash(data_hash);
  }
  // Like note_hash, for bytes that came from another node.
  void note_from_cluster(std::uint64_t data_hash) {
    content_.from_cluster = true;
    note_hash(data_hash);
  }
  // Whether the caller must check after the read that the file is unchanged, because neither its
  // times nor the kind of read prove it.
  bool wants_second_look() const;
  // Whether the stat may predate the last write. If so, a match of that stat does not prove a
  // tier's bytes either.
  bool is_stat_in_doubt() const { return !is_immutable_ && watch_.is_stat_in_doubt(); }
  // Makes the record visible to all processes. False: the record was refused; reason() says why.
  bool publish();

  // Gives the room up permanently, because the kernel may still write to it at any later time.
  void lose_room() { reservation_.lose(); }

  base::Counter reason() const { return reason_; }
  // A time (base::boot_ns) no later than any stat that this fill uses.
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
  std::uint64_t began_ns_;  // wall clock; no later than any stat that this fill uses
  RecordContent content_;
  bool is_watched_ = false;
  bool is_immutable_ = false;  // of the origin
  RamTier::Reservation reservation_;
  Pin pin_;
  base::Counter reason_ = base::Counter::bypassed_busy;
};

}  // namespace cube::cache
