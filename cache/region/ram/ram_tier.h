// The RAM tier: records in the shared region. RamTier finds records, and adds records in three
// steps: reserve the room, write the bytes, publish. Invariants: a pinned record does not move or
// change while its Pin lives, except for its marks. A reader never sees an incomplete record. Only
// four kinds of segments lose their records: segments of the ring, resident segments that have
// joined the ring (ring.h), segments that are given back to the machine (room_for_others.h), and
// segments with metadata. Thread-safe, also across processes. find is async-signal-safe and
// allocates nothing. The functions that reserve room, and ~Reservation, lock a mutex of this
// process. A signal handler must not reserve room, because these functions allocate.
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

// A pin on a record's segment, counted in a word that belongs to this process (lanes.h).
class Pin {
 public:
  // A pin for static memory. This type has no destructor, because static destructors run while
  // other threads still run, and after the process has left the region.
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
  // Makes another pin on the same record.
  Pin duplicate() const { return duplicate_of({counter_, record_}); }
  // Makes a pin on another record of the same segment, and counts it in the same counter. So a
  // process that checks the segment's pins cannot miss both pins.
  Pin also_on(const Record* record) const { return duplicate_of({counter_, record}); }
  static Pin duplicate_of(const Kept& kept) {
    if (kept.counter != nullptr) kept.counter->fetch_add(1, std::memory_order_seq_cst);
    return Pin(kept);
  }
  void release() {
    // Release: the reads of the segment come before its reuse. Pairs with the evictor's check of
    // all rows.
    if (counter_ != nullptr) counter_->fetch_sub(1, std::memory_order_release);
    forget();
  }
  Kept keep() && {
    const Kept kept{counter_, record_};
    forget();
    return kept;
  }
  // For a forked child: forgets the pin, because it belongs to the parent.
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
  // Room for one record in a segment that this process has leased, or that all processes fill. If
  // the record was not published, the destructor gives the room back.
  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&&) noexcept = default;
    Reservation& operator=(Reservation&&) noexcept = default;
    ~Reservation();
    // The writable room for the data, of the requested size.
    std::byte* data() const;
    // Gives up the room permanently. Used if the kernel may still write to the room for an unknown
    // time.
    void lose();
    // Whether the destructor will give all of the room back. True if the room is a run, or the last
    // room in its segment.
    bool can_be_undone() const;
    // For a forked child: forgets the room, because it belongs to the parent.
    void abandon();

   private:
    friend class RamTier;
    std::shared_ptr<Window> window_;
    RecordPlan plan_;
    // Keeps the segment from being reclaimed. Empty for a run: a run stays open until publish()
    // pins it.
    Pin claim_;
    bool has_claim_ = false;
    std::uint64_t fill_before_ = 0;
    bool published_ = false;
    RamTier* tier_ = nullptr;
  };

  explicit RamTier(Region& region);

  // find returns a record that this process's view has found by this path. find_of_others returns a
  // record that only other views have found by this path. Neither returns a stale record.
  Pin find(std::string_view path, std::uint64_t hash) const;
  Pin find_of_others(std::string_view path, std::uint64_t hash) const;
  // Returns the record that has replaced `of` (Record::k_replaced). The result may be stale. Empty:
  // the index no longer has such a record.
  Pin find_successor(const Record& of) const;
  // Whether the index still has this record, so that marks reach it.
  bool is_in_index(const Record& record) const;
  // Whether the index has a record, perhaps stale, of a file with this device and inode.
  bool has_inode(const FileStat& stat) const;
  // Whether any view has a record of this path that is not stale.
  bool has_any(std::string_view path, std::uint64_t hash) const;
  // Whether there is a record of this path, perhaps stale, whose file is on a mount and is not
  // known to have lost a name.
  bool has_named(std::string_view path) const;
  // Returns a record of this path, perhaps stale, whose file is on a mount and is not `now` (null:
  // any file). Ignores files that are known to have lost a name, because they may have kept another
  // name. Ignores paths through a link, because perhaps only the link has changed.
  Pin find_former(std::string_view path, const FileStat* now) const;
  // Whether the record's path has led to its file in this process's view.
  bool is_of_own_view(const Record& record) const;
  // Like find, but for a record of another kind.
  Pin find_of_kind(RecordKind kind, std::string_view path, std::uint64_t hash) const;
  // Like find_of_kind, but for a record of any view that came from this origin.
  Pin find_of_origin(OriginId origin, RecordKind kind, std::string_view path,
                     std::uint64_t hash) const;
  // The listing of a directory, under any path by which this view has found the directory.
  Pin find_directory(const FileStat& directory) const;
  // Shares a record of another view with this process's view. Call it after this process has found
  // the same file under the same path.
  Pin adopt(const RecordContent& found, std::uint64_t hash);
  // Shares a record with this process's view. The record's origin must show the same files to all
  // views.
  void show_to_own_view(const Record& record);

  // Reserves room in the resident pool. ENOSPC, ENOMEM: the region is full. ESTALE: the region has
  // lost its name.
  base::Result<Reservation> reserve(std::size_t path_length, std::uint64_t data_size,
                                    RecordShape shape = RecordShape::by_size);
  // Like reserve, but for the leader's prefetches, which have their own segment in the ring. EFBIG:
  // the record does not fit into a segment of the ring.
  base::Result<Reservation> reserve_in_ring(std::size_t path_length, std::uint64_t data_size);
  // Like reserve, but for any process, in the segment of the ring that all processes fill. ENOSPC:
  // there is currently no such segment, or the record is too large for a segment.
  base::Result<Reservation> reserve_shared(std::size_t path_length, std::uint64_t data_size);
  // Like reserve, but for metadata, in a segment that all processes fill (metadata_room.h). ENOSPC:
  // all segments that metadata may take are in use. ENOMEM: there is no memory for another segment.
  // EFBIG: the record is too large for a segment.
  struct MetadataLimits {
    // The maximum number of segments that metadata may take.
    std::uint32_t segments = 0;
    // base::boot_ns: a record that was last verified before this time counts as unused.
    std::uint64_t used_since_ns = 0;
  };
  base::Result<Reservation> reserve_for_metadata(std::size_t path_length, std::uint64_t data_size,
                                                 const MetadataLimits& limits);
  // Leases the segment for reserve_shared. Call it before the prefetcher takes all segments.
  void prepare_shared();
  // Whether the index has no room for another path of this file. Publishing one would fail with
  // EMLINK.
  bool has_many_names(const FileStat& stat) const;
  // Writes the head of a record whose data follows later. The record is unconfirmed, and the index
  // does not contain it. Returns a pin on the record.
  Pin write_head(const Reservation& reservation, const RecordContent& content);
  // Adds the record to the index as unconfirmed: changes of the file find it, but opens do not.
  // ENOSPC: the index has no room.
  base::Result<Pin> publish(Reservation& reservation, const RecordContent& content);
  // Makes the record visible to opens of all processes. False: the record has been marked since
  // publish(), and remains invisible. Opens never find an unconfirmed record.
  bool confirm(Reservation&& reservation, const Pin& pin);

  // Whether the path and the data lie inside the region. The answer is correct even if another
  // process has overwritten the header.
  bool is_within_region(const Record& record) const;

  // These functions mark records: all records of this path, this record, all records of this device
  // and inode, or all records below this directory. The results count the records that had no
  // k_changed mark. `how`: Record::k_changed, possibly with further marks of Record. mark_stale and
  // mark_stale_tree skip records that have this mark. `now`: the stat of the path; records of this
  // version are not marked. `before_ns`: marks only the records that were verified before this time
  // (base::boot_ns).
  std::size_t mark_stale(std::string_view path, std::uint32_t how = Record::k_changed,
                         const FileStat* now = nullptr);
  void mark_record_stale(const Record& record, std::uint32_t how = Record::k_changed);
  std::size_t mark_stale_inode(const FileStat& stat, std::uint32_t how = Record::k_changed,
                               std::uint64_t before_ns = UINT64_MAX);
  std::size_t mark_stale_tree(std::string_view directory);
  // Notes that the origin has confirmed at `now_ns` that the record is still right.
  void mark_verified(const Record& record, std::uint64_t now_ns);

  // Calls visit(offset, record), in order, for each record of this segment that can be found or
  // will soon be found. The caller must have a pin on the segment, so that it is not reclaimed.
  template <typename Visit>
  void visit_segment(std::uint32_t segment, Visit&& visit) const {
    const SegmentRow& row = region_->segment_row(segment);
    const std::uint64_t segment_bytes = region_->layout().segment_bytes;
    // A run has only one record.
    const bool is_run = row.run_length.load(std::memory_order_acquire) > 1;
    const std::uint64_t end =
        is_run ? segment_bytes
               : std::min<std::uint64_t>(row.fill.load(std::memory_order_acquire), segment_bytes);
    for (std::uint64_t at = 0; at + sizeof(Record) <= end;) {
      const Record* const record = published_at(segment, at);
      if (record != nullptr) visit(at, *record);
      if (is_run) return;
      // If reserved room has no record yet, its length is not known, so this searches in steps of
      // the alignment.
      at += record != nullptr ? record->record_size : k_record_alignment;
    }
  }
  // Pins a segment in its current generation if the segment can be read, and sets `generation`. The
  // pin refers to no record.
  bool hold(std::uint32_t segment, std::uint32_t& generation, Pin& claim) const;

  // Call note_device before a record of a file of this device can be found. knows_device returns
  // whether a file of this device has ever been cached, and may wrongly return true.
  void note_device(std::uint64_t device);
  bool knows_device(std::uint64_t device) const;

  // Whether the region has no room for a fetch. True while the index has no memory. Also true for
  // some seconds after the region had no room, if the segment that this process has leased has no
  // room for small files.
  bool is_full() const;
  // The size of the resident pool in bytes, used or not.
  std::uint64_t resident_bytes() const {
    return std::uint64_t{ring_.first_segment()} * region_->layout().segment_bytes;
  }
  // Called at the end of the process: lets other processes use the rest of the leased segment.
  void release_lease();
  // Like release_lease, but only for the segment of the ring.
  void release_ring_lease();
  // For a forked child: forgets the lease, because it belongs to the parent.
  void abandon();

  Region& region() const { return *region_; }
  std::uint64_t ring_room();
  struct PlaceInRegion {
    std::uint32_t segment = 0, generation = 0;
    std::uint64_t offset = 0, bytes = 0;
    bool is_in_ring = false;
  };
  // Returns the place of a pinned record.
  PlaceInRegion place_of(const Record& record) const;
  Ring& ring() { return ring_; }
  const MetadataRoom& metadata_room() const { return metadata_room_; }

 private:
  RecordContent seen_by_us(const RecordContent& content) const;
  // Makes a pin on the record of this reservation, in addition to the reservation's pin, if any.
  Pin pin_record_of(const Reservation& reservation) const;
  // Returns the first record of this hash that accept(record) accepts.
  template <typename Accept>
  Pin find_first(std::uint64_t hash, Accept&& accept) const;
  // Like find_first, but for a record of this path that is not stale.
  template <typename Accept>
  Pin find_if(RecordKind kind, std::string_view path, std::uint64_t hash, Accept&& accept) const;
  // Pins the record at this place. Empty: there is no record, or it does not end within the region.
  Pin pin(const RecordPlace& place) const;
  // Marks all records of this hash. `marks_of` returns the marks that a record gets. 0: no marks.
  template <typename MarksOf>
  std::size_t mark_each(std::uint64_t hash, MarksOf&& marks_of);
  template <typename Change>
  bool change_marks(const Record& record, Change&& change) const;
  bool mark_changed(const Record& record, std::uint32_t how);
  // Returns the record that the index has at this place. Null: there is no such record.
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
  // Reserves room in the segment that `room` fills, through the window of this pool. next(filling)
  // makes `room` fill another segment.
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
  // ERRORCHECK: a thread that already holds the mutex gets an error instead of waiting for itself.
  pthread_mutex_t mutex_ = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
  // The windows of the segments that are being filled. Guarded by mutex_.
  std::shared_ptr<Window> windows_[4];
  // The bytes that are left in the resident segment of this process.
  std::atomic<std::uint64_t> room_{0};
};

}  // namespace cube::cache
