// The RAM tier: records in the shared region. Finds them, and adds them in three steps: reserve,
// fill in, publish. Invariants: what a Pin shows stays where it is and does not change while the
// Pin lives (its marks apart); a reader never sees a record that is not whole. The resident pool
// keeps what it has, but for the few segments that may join the ring (ring.h), which alone is used
// anew. Thread safety: all of it, between threads and processes. find is async-signal-safe and
// allocates nothing; reserve and publish take a mutex of this process and must not be re-entered by
// a signal handler of the same thread.
#pragma once

#include <pthread.h>

#include <memory>
#include <string_view>

#include "cache/record/record.h"
#include "cache/region/index.h"
#include "cache/region/ram/metadata_room.h"
#include "cache/region/region.h"
#include "cache/region/ring.h"

namespace cube::cache {

// A claim on a record's segment, counted in a word that is this process's own (lanes.h).
class Pin {
 public:
  // A pin in static memory, which has no destructor: those run beside threads that go on, and after
  // the region was left.
  struct Kept {
    std::atomic<std::uint32_t>* counter = nullptr;
    const Record* record = nullptr;
  };

  Pin() = default;
  explicit Pin(const Kept& kept) : Pin(kept.counter, kept.record) {}
  Pin(Pin&& other) noexcept
      : counter_(std::exchange(other.counter_, nullptr)),
        record_(std::exchange(other.record_, nullptr)) {}
  Pin& operator=(Pin&& other) noexcept {
    if (this != &other) {
      release();
      counter_ = std::exchange(other.counter_, nullptr);
      record_ = std::exchange(other.record_, nullptr);
    }
    return *this;
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() { release(); }

  explicit operator bool() const { return record_ != nullptr; }
  const Record& operator*() const { return *record_; }
  const Record* operator->() const { return record_; }
  // Another claim on the same record.
  Pin duplicate() const { return duplicate_of({counter_, record_}); }
  static Pin duplicate_of(const Kept& kept) {
    if (kept.counter != nullptr) kept.counter->fetch_add(1, std::memory_order_seq_cst);
    return Pin(kept);
  }
  void release() {
    // Release: our reads of the segment come before its reuse; pairs with the evictor's look at all
    // rows.
    if (counter_ != nullptr) counter_->fetch_sub(1, std::memory_order_release);
    forget();
  }
  Kept keep() && {
    const Kept kept{counter_, record_};
    forget();
    return kept;
  }
  // In a forked child: the claim is the parent's.
  void forget() {
    counter_ = nullptr;
    record_ = nullptr;
  }

 private:
  friend class RamTier;
  Pin(std::atomic<std::uint32_t>* counter, const Record* record)
      : counter_(counter), record_(record) {}
  std::atomic<std::uint32_t>* counter_ = nullptr;
  const Record* record_ = nullptr;
};

enum class Pool : std::uint8_t { resident, ring, shared, names };

class RamTier {
  struct Window;

 public:
  // Room for one record in a segment that this process has leased. Given back by its destructor
  // unless published.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&&) noexcept = default;
    Reservation& operator=(Reservation&&) noexcept = default;
    ~Reservation();
    std::byte* data() const;  // writable, of the size asked for
    // Something may still write to it, and nobody knows for how long: it is never used for anything
    // else.
    void lose();
    // Its destructor gives all of it back: it is a run, or the last room of its segment.
    bool can_be_undone() const;
    // In a forked child.
    void abandon();

   private:
    friend class RamTier;
    std::shared_ptr<Window> window_;
    RecordPlan plan_;
    Pin claim_;  // not on a run, which is open until publish() has a claim: the segment is not used
                 // anew under it
    bool has_claim_ = false;
    std::uint64_t fill_before_ = 0;
    bool published_ = false;
    RamTier* tier_ = nullptr;
  };

  explicit RamTier(Region& region);

  // find: a record that this process's view has found by this path. find_of_others: one that only
  // other views have found.
  Pin find(std::string_view path, std::uint64_t hash) const;
  Pin find_of_others(std::string_view path, std::uint64_t hash) const;
  // Is there a record of this path, of any view?
  bool has_any(std::string_view path, std::uint64_t hash) const;
  // The same as find, of another kind.
  Pin find_of_kind(RecordKind kind, std::string_view path, std::uint64_t hash) const;
  // The listing of a directory, by whatever path this view has found it.
  Pin find_directory(const FileStat& directory) const;
  // Takes the record of another view for ours, too: we have just found the very same file by the
  // same path.
  Pin adopt(const RecordContent& found, std::uint64_t hash);

  // ENOSPC, ENOMEM: the region is full. ESTALE: it has lost its name. EFBIG: a segment of the ring
  // does not hold it.
  base::Result<Reservation> reserve(std::size_t path_length, std::uint64_t data_size,
                                    RecordShape shape = RecordShape::by_size);
  // For who leads the prefetching, in a segment of its own.
  base::Result<Reservation> reserve_in_ring(std::size_t path_length, std::uint64_t data_size);
  // For anybody, in the segment of the ring that all fill. ENOSPC: none for now, or it is too large
  // for any.
  base::Result<Reservation> reserve_shared(std::size_t path_length, std::uint64_t data_size);
  // For names, in a segment that all fill (metadata_room.h). ENOSPC: all that there may be are in
  // use; ENOMEM: there is none to be had; EFBIG: none holds it.
  struct MetadataLimits {
    std::uint32_t segments = 0;  // at most
    std::uint64_t used_since_ns =
        0;  // base::boot_ns: a record that was last looked at before is not in use
  };
  base::Result<Reservation> reserve_for_metadata(std::size_t path_length, std::uint64_t data_size,
                                                 const MetadataLimits& limits);
  // Gets that segment, before who prefetches takes all there is.
  void prepare_shared();
  // Does the index hold as many names of this file as it takes? Then it takes no other (EMLINK).
  bool has_many_names(const FileStat& stat) const;
  // The head of a record whose data is to come, unconfirmed and in no index. A claim on it.
  Pin write_head(const Reservation& reservation, const RecordContent& content);
  // Puts the record into the index, where changes of the file find it but nobody else does. ENOSPC:
  // the index has no room.
  base::Result<Pin> publish(Reservation& reservation, const RecordContent& content);
  // Shows it to all, unless it was marked meanwhile; false then. Unconfirmed, it is never found.
  bool confirm(Reservation&& reservation, const Pin& pin);

  // Do the path and the data lie inside the region? It holds for a header that somebody else has
  // written over, too.
  bool is_within_region(const Record& record) const;

  // Marks every record of this path, or of this device and inode, or below this directory; returns
  // how many.
  std::size_t mark_stale(std::string_view path);
  void mark_record_stale(const Record& record);
  std::size_t mark_stale_inode(const FileStat& stat);
  std::size_t mark_stale_tree(std::string_view directory);
  // The origin was asked and the record is still right.
  void mark_verified(const Record& record, std::uint64_t now_ns);

  // Each record of this segment that can be found or is about to be, in its order. visit(offset,
  // record). The caller holds the segment, so that it stays as it is meanwhile.
  template <typename Visit>
  void visit_segment(std::uint32_t segment, Visit&& visit) const {
    const SegmentRow& row = region_->segment_row(segment);
    const std::uint64_t segment_bytes = region_->layout().segment_bytes;
    // A run has one record.
    const bool is_run = row.run_length.load(std::memory_order_acquire) > 1;
    const std::uint64_t end =
        is_run ? segment_bytes
               : std::min<std::uint64_t>(row.fill.load(std::memory_order_acquire), segment_bytes);
    for (std::uint64_t at = 0; at + sizeof(Record) <= end;) {
      const Record* const record = published_at(segment, at);
      if (record != nullptr) visit(at, *record);
      if (is_run) return;
      // Room that was given out and is not filled yet, or never will be, says nothing of its
      // length.
      at += record != nullptr ? record->record_size : k_record_alignment;
    }
  }
  // A claim on a segment that can be read, as it is now; `generation` is set. The claim stands for
  // no record.
  bool hold(std::uint32_t segment, std::uint32_t& generation, Pin& claim) const;

  // Before a file of this device can be found. Has one ever been cached? Says yes rather too often.
  void note_device(std::uint64_t device);
  bool knows_device(std::uint64_t device) const;

  // Is it not worth trying? Not while small files still fit into this process's own segment, nor
  // for longer than some seconds.
  bool is_full() const;
  // The room for records that stay, used or not.
  std::uint64_t resident_bytes() const {
    return std::uint64_t{ring_.first_segment()} * region_->layout().segment_bytes;
  }
  // At the end of the process: what is left of the leased segment may be used by others.
  void release_lease();
  // The same of the segment of the ring alone.
  void release_ring_lease();
  // In a forked child: the lease is the parent's.
  void abandon();

  Region& region() const { return *region_; }
  std::uint64_t ring_room();
  struct PlaceInRegion {
    std::uint32_t segment = 0, generation = 0;
    std::uint64_t offset = 0, bytes = 0;
    bool is_in_ring = false;
  };
  // For a record that is pinned.
  PlaceInRegion place_of(const Record& record) const;
  Ring& ring() { return ring_; }
  const MetadataRoom& metadata_room() const { return metadata_room_; }

 private:
  RecordContent seen_by_us(const RecordContent& content) const;
  template <typename Accept>
  Pin find_if(RecordKind kind, std::string_view path, std::uint64_t hash, Accept&& accept) const;
  // A claim on what lies there, if it is a record, and one that ends within the region.
  const Record* pin(const RecordPlace& place, std::atomic<std::uint32_t>*& counter) const;
  template <typename Wanted>
  std::size_t mark_if(std::uint64_t hash, Wanted&& wanted);
  template <typename Change>
  bool change_marks(const Record& record, Change&& change) const;
  bool mark_changed(const Record& record);
  // The record that the index has there. Null: there is none.
  const Record* published_at(std::uint32_t segment, std::uint64_t offset) const;
  base::Result<void> show_window(Pool pool, std::uint32_t segment);
  void set_full(int error);
  void note_index_error(int error);
  base::Result<std::shared_ptr<Window>> open_window(std::uint32_t segment, std::uint32_t count);
  base::Result<Reservation> reserve_run(std::size_t path_length, std::uint64_t data_size);
  struct RecordNeeds {
    std::size_t path_length = 0;
    std::uint64_t data_size = 0;
    RecordShape shape = RecordShape::by_size;
    Pool pool = Pool::resident;
  };
  base::Result<Reservation> reserve_in_segment(const RecordNeeds& needs);
  // In the segment that `room` fills, by the window of this pool; next(filling) makes it fill
  // another.
  template <typename Room, typename Next>
  base::Result<Reservation> reserve_where_all_fill(Pool pool, const Room& room,
                                                   std::size_t path_length, std::uint64_t data_size,
                                                   Next&& next);
  bool may_drop_metadata(std::uint32_t segment, std::uint64_t used_since_ns) const;
  base::Result<void> next_segment(Pool pool, std::uint64_t bytes);
  void let_go_of_window(Pool pool);
  static void keep_for_ever(std::shared_ptr<Window> window);
  base::Result<void> insert(std::uint64_t hash, const RecordPlace& place, const Record& record);

  std::shared_ptr<Window>& window_of(Pool pool) { return windows_[static_cast<std::size_t>(pool)]; }

  Region* region_;
  Index index_;
  Ring ring_;
  MetadataRoom metadata_room_;
  // Error-checking: a signal handler that exits in the middle of a fetch must not wait for itself.
  pthread_mutex_t mutex_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
  std::shared_ptr<Window> windows_[4];  // of the segments being filled; guarded by mutex_
  std::atomic<std::uint64_t> room_{0};  // bytes left in the resident one
};

}  // namespace cube::cache
