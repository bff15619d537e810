// Chunks of large files in the region. A chunk is 2 MiB of a file, and begins at a multiple of 2
// MiB. Each of its pages (4 KiB) is present or absent. A present page holds the bytes of one
// version of the file.
//
// A chunk has a place: 2 MiB of a segment that belongs to large files. The chunks of a file are
// adjacent if the region has room for this, so that a mapping of the file consists of few pieces.
// Most chunks stay in their places. So even if the data is larger than the memory, the part that
// fits still gets hits. No chunk is replaced while a process has a pin on it, or after a program
// has mapped it. If no place is free, three kinds of chunks can be replaced. Kept chunks, which
// hold parts of files that are not large files, are replaced first (chunks_kept.cc). Chunks of an
// earlier version of a file can be replaced by chunks of the same file. Chunks that pass are
// replaced by each other, the oldest first (chunks_passing.cc). Chunks that pass have an eighth of
// the places, but at least 64 MiB and at most half of the places. Invariants: a page that is
// present is never written to while the chunk has its place. A writer of an absent page holds the
// flight for its block (single_flight.h). Thread-safe, also across processes. Async-signal-safe, no
// allocation.
#pragma once

#include <algorithm>
#include <optional>

#include "cache/base/memory/mapping.h"
#include "cache/record/file_stat.h"
#include "cache/region/region.h"

namespace cube::cache {

// A version of a file, identified by its path and by its stat.
struct FileKey {
  std::uint64_t path = 0;
  std::uint64_t version[2] = {};
  friend bool operator==(const FileKey&, const FileKey&) = default;
};
FileKey key_of_file(std::string_view path, const FileStat& stat);
// The hash for the flight that fetches block `number` of this version (single_flight.h).
std::uint64_t block_hash_of(const FileKey& key, std::uint64_t number);

// Pages of a chunk, from `first` up to but not including `end`.
struct PageRun {
  std::uint32_t first = 0, end = 0;
  bool is_empty() const { return first >= end; }
  std::uint32_t count() const { return end - first; }
};

class Chunks {
 public:
  static constexpr std::uint64_t k_page_bytes = 4096;
  static constexpr std::uint32_t k_none = UINT32_MAX;

  // A pin on a chunk. The chunk keeps its place until the pin ends.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept { swap(other); }
    Claim& operator=(Claim&& other) noexcept {
      Claim(std::move(other)).swap(*this);
      return *this;
    }
    ~Claim() { release(); }
    explicit operator bool() const { return row_ != nullptr; }
    const std::byte* data() const { return data_; }
    // The offset of the chunk's first byte in the region's file.
    std::uint64_t offset(const Region& region) const { return region.offset_of(data_); }
    std::uint32_t place() const { return place_; }
    void release() {
      // Release: the reads of the chunk come before another file's bytes replace it. Pairs with the
      // check of all pins in take_replaced.
      if (counter_ != nullptr) give_up(counter_, epoch_);
      forget();
    }
    // Makes this object forget the pin, which give_up() must then end (see words()).
    void forget() {
      counter_ = nullptr;
      row_ = nullptr;
    }
    // The run of present (or absent) pages that begins at `page`, up to `end`. Without a chunk, all
    // pages are absent.
    PageRun present_from(std::uint32_t page, std::uint32_t end) const {
      return {page, end_of_run(page, end, true)};
    }
    PageRun absent_from(std::uint32_t page, std::uint32_t end) const {
      return {page, end_of_run(page, end, false)};
    }
    // The first run of present (or absent) pages that begins at or after `page`. next_absent
    // returns at most `most` pages.
    PageRun next_present(std::uint32_t page, std::uint32_t end) const {
      return present_from(absent_from(page, end).end, end);
    }
    PageRun next_absent(const PageRun& in, std::uint32_t most = ChunkRow::k_pages) const {
      const std::uint32_t first = present_from(in.first, in.end).end;
      return absent_from(first, std::min(in.end, first + most));
    }
    bool has_any(const PageRun& pages) const {
      return end_of_run(pages.first, pages.end, false) != pages.end;
    }
    bool has_all(const PageRun& pages) const {
      return end_of_run(pages.first, pages.end, true) == pages.end;
    }
    // Returns how many pages of the run were fetched ahead and are now read for the first time. If
    // there are none, stores nothing.
    std::uint32_t take_unread(const PageRun& pages) const {
      return row_->unread.load(std::memory_order_relaxed) == 0 ? 0 : take_unread_slow(pages);
    }
    // Notes that a mapping shows these pages to the job. Returns how many of the pages are new to
    // the job. If two jobs alternate, a page can count as new several times.
    std::uint32_t note_shown(const PageRun& pages, std::uint32_t job) const;
    // The values by which give_up() can end the pin without this object, after a jump. `counter` is
    // null if there is no pin.
    struct Words {
      std::atomic<std::uint32_t>* counter;
      std::uint32_t epoch;
    };
    Words words() const { return {counter_, epoch_}; }
    // Ends a pin. Does nothing if the pin was made before a fork, because such a pin belongs to the
    // parent.
    static void give_up(std::atomic<std::uint32_t>* counter, std::uint32_t epoch) {
      if (epoch == own_epoch.load(std::memory_order_relaxed))
        counter->fetch_sub(1, std::memory_order_release);
    }
    // Whether this chunk passes: a chunk of another file may replace it when no process has a pin
    // on it.
    bool is_passing() const { return row_->passed.load(std::memory_order_relaxed) != 0; }
    // Notes that a program maps the chunk.
    void note_mapped() const {
      row_->mapped.fetch_or(ChunkRow::k_is_mapped, std::memory_order_seq_cst);
    }
    // Notes that this process maps the file that begins with this chunk. Returns the process that
    // did so before, or 0. Both are process_words (process_slots.h).
    std::uint32_t note_mapper(std::uint32_t process) const;

   private:
    friend class Chunks;
    void swap(Claim& other) noexcept {
      std::swap(counter_, other.counter_);
      std::swap(epoch_, other.epoch_);
      std::swap(row_, other.row_);
      std::swap(data_, other.data_);
      std::swap(place_, other.place_);
    }
    std::uint32_t take_unread_slow(const PageRun& pages) const;
    std::uint32_t end_of_run(std::uint32_t page, std::uint32_t end, bool present) const;

    std::atomic<std::uint32_t>* counter_ = nullptr;
    std::uint32_t epoch_ = 0;
    ChunkRow* row_ = nullptr;
    const std::byte* data_ = nullptr;
    std::uint32_t place_ = k_none;
  };

  explicit Chunks(Region& region) : region_(&region) {}
  // The process that note_mapper() has noted for the chunk at this place, or 0.
  std::uint32_t mapper_of(std::uint32_t place) const {
    return region_->chunk_row(place).mapped.load(std::memory_order_relaxed) &
           ~ChunkRow::k_is_mapped;
  }

  // For a forked child: forgets the pins of its thread, because they belong to the parent. There
  // can be such pins, because a signal handler that forked can return into a read that holds a pin.
  static void forget_claims() { own_epoch.fetch_add(1, std::memory_order_relaxed); }

  // Finds a chunk. Empty: there is no such chunk. `hint`: a place to search first, or k_none.
  Claim find(const FileKey& key, std::uint32_t number, std::uint32_t hint = k_none) const;
  // Finds the chunk, or makes it: in the place `wanted` if that place is free, or in another place.
  // Empty: no place is left. Two processes that need different blocks of a chunk can make the chunk
  // twice at the same time. Each copy then has pages that the other copy lacks. So a caller must
  // always search for a chunk with the same `hint`, and must determine the absent pages from the
  // Claim through which it writes. `pass` applies if no place is free. `no`: the result is empty.
  // `may_pass`: the chunk replaces a chunk that passes, but not a chunk with blocks that the tiers
  // are about to get. `must_pass`: the chunk replaces even such a chunk.
  enum class Pass : std::uint8_t { no, may_pass, must_pass };
  Claim make(const FileKey& key, std::uint32_t number, std::uint32_t wanted, Pass pass = Pass::no);
  // Like find() and make(), but for a kept chunk.
  Claim find_kept(const FileKey& key, std::uint32_t number) const;
  Claim make_kept(const FileKey& key, std::uint32_t number);
  // Frees all segments that contain only kept chunks. False: there is no such segment.
  bool free_kept_segments();
  // True if a recent search found no free place.
  bool is_full() const;
  // The largest number of chunks that pass, if the region has this many places and none of them is
  // free.
  static std::uint32_t most_passing(std::uint32_t places);
  // The largest total size of the chunks that pass in this region, in bytes.
  std::uint64_t passing_bytes() const;
  // The total size in bytes of the places that are free or have a kept chunk.
  std::uint64_t free_bytes() const;
  // Returns the first of `count` consecutive free places for the chunks of a file. The places are
  // not reserved.
  std::uint32_t place_for(std::uint32_t count);

  // Reserves memory for these pages and maps them writable. The caller must hold the flight of the
  // pages, and all of the pages must be absent.
  base::Result<base::Mapping> window(const Claim& claim, const PageRun& pages);
  // Writes the pages at `from` to the chunk through an fd of the region's file. EFAULT: the memory
  // at `from` cannot be read. The conditions of window() apply here, too.
  base::Result<void> copy_in(int region_fd, const Claim& claim, const PageRun& pages,
                             const std::byte* from);
  // Notes that the pages were fetched before any program asked for them. Call it before
  // note_present().
  void note_ahead(const Claim& claim, const PageRun& pages) const;
  // For the tiers (tier/block_writer.h, tier/cluster_blocks.h): notes that a block of the chunk has
  // become whole and can be offered to the tiers. `has_disk`: the disk already has the block.
  void note_whole(const Claim& claim, bool has_disk = false) const;
  // Notes that these pages must no longer be offered to the tiers. The tiers have these pages, have
  // been offered them, or must not get them.
  void note_offered(const Claim& claim, const PageRun& pages) const;
  // Like note_offered, but only for the cluster.
  void note_shared(const Claim& claim, const PageRun& pages) const;
  bool is_shared(const Claim& claim, const PageRun& pages) const;
  // How many blocks have ever become whole, at this place or in the whole region.
  std::uint32_t wholes(std::uint32_t place) const;
  std::uint64_t wholes() const {
    return region_->header().blocks_whole.load(std::memory_order_acquire);
  }
  // True if any of these pages was noted as offered.
  bool is_offered(const Claim& claim, const PageRun& pages) const;
  // Returns the chunk at this place if some of its blocks have become whole since the chunk was
  // last offered.
  struct Offer {
    Claim claim;
    FileKey key;
    std::uint32_t number = 0;
    // How many blocks became whole.
    std::uint32_t whole = 0;
  };
  std::optional<Offer> offer_at(std::uint32_t place) const;
  // Returns the chunk at this place, even if all its blocks have been offered.
  std::optional<Offer> chunk_at(std::uint32_t place) const;
  bool has_offer(std::uint32_t place) const;
  // Notes that all blocks that were whole when `offer` was made have been offered. Wakes the
  // threads that wait for the tiers.
  void end_offer(const Offer& offer) const;
  void tell_waiting() const;
  // How many offers have ended so far.
  std::uint32_t offers_ended() const {
    return region_->header().chunks_written.load(std::memory_order_seq_cst);
  }
  // True if the last make() found no place, but found a chunk that can be replaced as soon as the
  // tiers have its blocks.
  bool waits_for_tiers() const { return waits_for_tiers_; }
  // Waits until offers_ended() differs from `ended`, but for at most `at_most_ns`.
  void wait_for_tiers(std::uint32_t ended, std::uint64_t at_most_ns) const;

  // Drops the chunk at this place, and gives its memory back to the machine. Returns the number of
  // bytes. Spares a chunk if a process has a pin on it or a program has mapped it. If `whatever` is
  // false, also spares a chunk that has unread pages, or blocks that the tiers are about to get.
  std::uint64_t give_back_memory(std::uint32_t place, bool whatever);
  // Hides the chunk from lookups. The chunk then counts as a chunk of an earlier version of the
  // file.
  void forget(const FileKey& key, std::uint32_t number);
  // Notes that the pages hold the bytes of the file.
  void note_present(const Claim& claim, const PageRun& pages) const;

  Region& region() const { return *region_; }

 private:
  static inline constinit std::atomic<std::uint32_t> own_epoch{
      // The number of forks between the first process and this process.
      0};

  Claim claim(std::uint32_t place) const;
  bool is_of(const ChunkRow& row, const FileKey& key, std::uint32_t number) const;
  Claim claim_if(std::uint32_t place, const FileKey& key, std::uint32_t number) const;
  // Takes a place. On success the place is open, and the caller must seal it or give it back.
  bool take_place(std::uint32_t place, const FileKey& key, std::uint32_t number);
  // The chunk that may be replaced: a chunk of an earlier version of the file, a kept chunk, or any
  // chunk. `any` is used for a chunk that passes.
  enum class Replaced : std::uint8_t { former_version, kept, any };
  bool take_replaced(std::uint32_t place, const FileKey& key, std::uint32_t number,
                     Replaced replaced);
  void write(std::uint32_t place, const FileKey& key, std::uint32_t number, bool passes) const;
  bool is_made_by_other(const FileKey& key, std::uint32_t number, std::uint32_t place,
                        std::uint32_t wanted, Claim& other) const;
  void give_back(std::uint32_t place) const;
  void remove_name(std::uint32_t place) const;
  void drop_unread(ChunkRow& row) const;
  bool insert(std::uint64_t hash, std::uint32_t place) const;
  Claim seal(std::uint32_t place, const FileKey& key, std::uint32_t number, std::uint32_t wanted);
  // The number of a kept chunk has this bit, so that lookups for large files do not find the chunk.
  static constexpr std::uint32_t k_kept = 1U << 31;
  static bool is_kept(const ChunkRow& row) {
    return (row.number.load(std::memory_order_relaxed) & k_kept) != 0;
  }
  std::uint32_t kept_place(const FileKey& key, std::uint32_t number);
  bool free_kept_segment(std::uint32_t segment);
  std::uint32_t any_place(const FileKey& key, std::uint32_t number);
  std::uint32_t former_place(const FileKey& key, std::uint32_t number);
  std::uint32_t passing_place(const FileKey& key, std::uint32_t number, Pass pass);
  void count_passing() const;
  std::uint32_t segment_of(std::uint32_t place) const {
    return place / region_->layout().chunks_of_segment();
  }

  Region* region_;
  bool waits_for_tiers_ = false;
};

// The bytes of all large files in the region's memory, and how many of these bytes were fetched
// ahead and have not been read yet.
struct ChunkFigures {
  std::uint64_t bytes = 0, unread = 0;
};
ChunkFigures figures_of_chunks(const Region& region);

// Frees the places that a process was changing when it died. The caller must hold the lifecycle
// lock.
void forget_chunks_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
