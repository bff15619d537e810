// The cache's part of one fetch, which does no I/O. The caller (an open or the prefetch engine)
// opens and reads the file, in this order:
//   the RecordFill is constructed -> (the file is opened) -> accept -> (its bytes are read to
//   room()) -> (its stat is asked again) -> publish
// The caller asks for the stat again only if wants_second_look() is true. Thread safety: one thread
// at a time. If the object is destroyed before publish(), the fetch leaves no trace.
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

// `demand`: a program waits for the fetch. `background`: no program waits, and the record is marked
// as prefetched. `_with_ring`: if there is no other room, the record may be placed in the ring.
enum class Lane : std::uint8_t { demand, demand_with_ring, background, background_with_ring };

class RecordFill {
 public:
  enum class Next {
    read,   // the caller must read the whole file into room()
    done,   // the file need not be read: pin() is the record that another view has fetched
    refuse  // the file is not cached; reason() says why
  };

  // Construct it before the file is opened. `key` must outlive this object.
  RecordFill(RamTier& tier, const FillRules& rules, std::string_view key, Lane lane = Lane::demand);

  // Begins to watch the file earlier than accept() would, with a stat that the origin has just
  // returned. False: a process may have the file open for writing, or may have closed it just now.
  bool watch(const FileStat& stat);
  // Call it if the stat for accept() was requested before this object was constructed. `looked_ns`:
  // the time of the request (base::boot_ns).
  void note_looked(std::uint64_t looked_ns);
  // Ends the watch of watch(). The next accept() begins a new watch, with its own stat.
  void end_watch() { is_watched_ = false; }
  // Accepts or refuses the file to which the path led.
  Next accept(const FileAtOrigin& file);
  std::byte* room() const { return reservation_.data(); }
  // For a file whose bytes arrive in parts (partial_fill.h). Writes the head of the record to the
  // room, and returns a pin on the record, which is not published yet.
  Pin show_head();
  // Whether the destructor can give the whole room back.
  bool can_be_undone() const { return reservation_.can_be_undone(); }
  // Whether the file was not changed through the shim since construction. Its path may have
  // changed.
  bool is_unchanged() const { return watch_.is_content_unchanged(); }
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
  // Whether the caller must ask for the stat again after the read, to check that the file is
  // unchanged. True if the file is large, was changed recently, or has a doubtful stat. False if
  // the origin is immutable.
  bool wants_second_look() const;
  // Whether the stat may be older than the last write. If so, the stat does not prove a tier's
  // bytes, even if it matches.
  bool is_stat_in_doubt() const { return !is_immutable_ && watch_.is_stat_in_doubt(); }
  // Makes the record visible to all processes. False: the record was not published; reason() says
  // why.
  bool publish();

  // Gives up the room for good. Nothing else uses it, because the kernel may still write to it.
  void lose_room() { reservation_.lose(); }

  base::Counter reason() const { return reason_; }
  // A time (base::boot_ns) before all stats that this fill uses.
  std::uint64_t looked_ns() const { return content_.verified_ns; }
  Pin& pin() { return pin_; }

 private:
  bool begin_watch(const FileStat& stat, int fd);
  bool has_path();
  bool refuse(base::Counter reason) {
    reason_ = reason;
    return false;
  }

  base::Result<RamTier::Reservation> reserve(std::uint64_t size);

  RamTier* tier_;
  FillRules rules_;
  Lane lane_;
  ChangeWatch watch_;
  std::uint64_t began_ns_;  // wall clock; before all stats that this fill uses
  RecordContent content_;
  bool is_watched_ = false;
  bool is_immutable_ = false;  // the origin is immutable
  RamTier::Reservation reservation_;
  Pin pin_;
  base::Counter reason_ = base::Counter::bypassed_busy;
};

}  // namespace cube::cache
