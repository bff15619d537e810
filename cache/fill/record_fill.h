// The cache's part of one fetch, without the I/O. The caller (an open or the prefetch engine) opens
// and reads the file, in this order:
//   the RecordFill is constructed -> (the file is opened) -> accept -> (its bytes are read to
//   room()) -> (its stat is asked again) -> publish
// The caller asks for the stat again only if wants_second_look(). Thread safety: one thread at a
// time. If the object is destroyed before publish, no trace of the fetch remains.
#pragma once

#include <string_view>

#include "cache/base/settings/config.h"
#include "cache/fill/change_watch.h"
#include "cache/origin/origin.h"
#include "cache/region/ram/ram_tier.h"

namespace cube::cache {

struct FillRules {
  std::uint64_t max_file = 0;  // bytes
  std::uint64_t block = 0;     // bytes, for files larger than max_file; 0: the kernel serves them
  base::ConsistencyKind consistency = base::ConsistencyKind::immutable;
};

// Whether a program waits for the fetch (demand) or not (background), and whether the record may be
// placed in the ring if there is no other room. Records of the background lanes are marked as
// prefetched.
enum class Lane : std::uint8_t { demand, demand_with_ring, background, background_with_ring };

class RecordFill {
 public:
  enum class Next {
    read,   // the caller must read the whole file to room()
    done,   // no need to read: pin() holds the record that another view has fetched
    refuse  // the file is not cached; reason() says why
  };

  // Construct it before the file is opened. `key` must outlive this object.
  RecordFill(RamTier& tier, const FillRules& rules, std::string_view key, Lane lane = Lane::demand);

  // Begins to watch the file before accept(), with a stat that the origin has just returned.
  // accept() then does not begin another watch. False: a process may have the file open for
  // writing, or had it open until just now.
  bool watch(const FileStat& stat);
  // Call it if the stat for accept() was requested before this object was constructed. `looked_ns`:
  // the time of that request (base::boot_ns).
  void note_looked(std::uint64_t looked_ns);
  // Makes the next accept(), which gets a later stat, watch the file again.
  void end_watch() { is_watched_ = false; }
  // Accepts or refuses the file to which the path led.
  Next accept(const FileAtOrigin& file);
  std::byte* room() const { return reservation_.data(); }
  // For a file whose bytes arrive in parts (partial_fill.h): writes the head of the record to the
  // room without publishing the record. Returns a pin on the record.
  Pin show_head();
  // Whether the room can be given back without loss.
  bool can_be_undone() const { return reservation_.can_be_undone(); }
  // Whether the file is unchanged through the shim since construction.
  bool is_unchanged() const { return watch_.is_unchanged(); }
  RamTier& tier() const { return *tier_; }
  // In a forked child: forgets the room, because it belongs to the parent.
  void abandon() { reservation_.abandon(); }
  // Notes that the bytes in room() were checked against this xxh3.
  void note_hash(std::uint64_t data_hash) { content_.data_hash = data_hash; }
  // Like note_hash, but for bytes that came from a tier.
  void note_from_tier(std::uint64_t data_hash) {
    content_.from_disk = true;
    note_hash(data_hash);
  }
  // Like note_hash, but for bytes that came from another node.
  void note_from_cluster(std::uint64_t data_hash) {
    content_.from_cluster = true;
    note_hash(data_hash);
  }
  // Whether the caller must check after the read that the file is unchanged. True if neither the
  // times of the file nor the kind of read prove that.
  bool wants_second_look() const;
  // Whether the stat may predate the last write. In that case, a match of the stat does not prove a
  // tier's bytes either.
  bool is_stat_in_doubt() const { return !is_immutable_ && watch_.is_stat_in_doubt(); }
  // Makes the record visible to all processes. False: the record was refused; reason() says why.
  bool publish();

  // Gives up the room permanently, because the kernel may still write to it later.
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
  bool is_immutable_ = false;  // the origin is immutable
  RamTier::Reservation reservation_;
  Pin pin_;
  base::Counter reason_ = base::Counter::bypassed_busy;
};

}  // namespace cube::cache
