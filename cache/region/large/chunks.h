// Chunks of large files in the region. A chunk is 2 MiB of a file, from a multiple of 2 MiB on.
// Each of its pages of 4 KiB is present or not, and each page that is present is what the file of
// this version held.
//
// A chunk has a place: 2 MiB of a segment that belongs to large files. The chunks of a file lie
// side by side where the region has room for that, so that a mapping of the file takes few pieces.
// A place that has a chunk keeps it, so that data larger than the memory hits its share. Two kinds
// of chunk are replaced, if nobody has a claim on them and no program has mapped them: those of an
// earlier version of the same file, and, where no place is free, those that pass. An eighth of the
// places is for chunks that pass, 64 MiB at least and no more than half; the oldest is replaced
// first (chunks_passing.cc). Invariants: a page that is present is never written to while the chunk
// has its place. A writer of an absent page holds the flight for its block (single_flight.h).
// Thread safety: all of it, between threads and processes. Async-signal-safe, no allocation.
#pragma once

#include <algorithm>
#include <optional>

#include "cache/base/memory/mapping.h"
#include "cache/record/file_stat.h"
#include "cache/region/region.h"

namespace cube::cache {

// A version of a file: by its path, and by what its stat says of it.
struct FileKey {
  std::uint64_t path = 0;
  std::uint64_t version[2] = {};
  friend bool operator==(const FileKey&, const FileKey&) = default;
};
FileKey key_of_file(std::string_view path, const FileStat& stat);

// Pages of a chunk, from the first up to but not including the last.
struct PageRun {
  std::uint32_t first = 0, end = 0;
  bool is_empty() const { return first >= end; }
  std::uint32_t count() const { return end - first; }
};

class Chunks {
 public:
  static constexpr std::uint64_t k_page_bytes = 4096;
  static constexpr std::uint32_t k_none = UINT32_MAX;

  // A claim on a chunk: it keeps its place.
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
    // The offset of its first byte in the region's file.
    std::uint64_t offset(const Region& region) const { return region.offset_of(data_); }
    std::uint32_t place() const { return place_; }
    void release() {
      // Release: our reads of the chunk come before another file's bytes; pairs with the look at
      // all claims in may_replace.
      if (counter_ != nullptr) give_up(counter_, epoch_);
      forget();
    }
    // Somebody else gives it up.
    void forget() {
      counter_ = nullptr;
      row_ = nullptr;
    }
    // The pages from `page` on that are present, and those that are absent, up to `end`. Without a
    // chunk all are absent.
    PageRun present_from(std::uint32_t page, std::uint32_t end) const {
      return {page, end_of_run(page, end, true)};
    }
    PageRun absent_from(std::uint32_t page, std::uint32_t end) const {
      return {page, end_of_run(page, end, false)};
    }
    // The first run of present pages at `page` or behind it, or of absent ones, of which `most` are
    // wanted.
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
    // Pages that were fetched ahead and that nobody has had before: how many of these pages are
    // such, once. Without a store where there are none.
    std::uint32_t take_unread(const PageRun& pages) const {
      return row_->unread.load(std::memory_order_relaxed) == 0 ? 0 : take_unread_slow(pages);
    }
    // The program's job is shown these pages by a mapping: how many of them for the first time. Two
    // jobs that take turns count again.
    std::uint32_t note_shown(const PageRun& pages, std::uint32_t job) const;
    // The words of one that is given up without this object, after a jump; `counter` is null where
    // there is none.
    struct Words {
      std::atomic<std::uint32_t>* counter;
      std::uint32_t epoch;
    };
    Words words() const { return {counter_, epoch_}; }
    // A claim from before a fork is the parent's.
    static void give_up(std::atomic<std::uint32_t>* counter, std::uint32_t epoch) {
      if (epoch == own_epoch.load(std::memory_order_relaxed))
        counter->fetch_sub(1, std::memory_order_release);
    }
    // It may be replaced by another file's as soon as nobody has a claim on it.
    bool is_passing() const { return row_->passed.load(std::memory_order_relaxed) != 0; }
    // A program maps it.
    void note_mapped() const { row_->is_mapped.store(1, std::memory_order_seq_cst); }

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

  // In a forked child: the claims of its thread are the parent's. A handler that forked may return
  // into a read.
  static void forget_claims() { own_epoch.fetch_add(1, std::memory_order_relaxed); }

  // Empty where there is none. `hint`: a place to look at first, or k_none.
  Claim find(const FileKey& key, std::uint32_t number, std::uint32_t hint = k_none) const;
  // The same, or a place for it, `wanted` if that is free. Empty: no place is left. If somebody
  // else makes the same chunk at the same time, for another block of it, two may be made. Each has
  // pages that the other lacks, so a caller looks for a chunk with one and the same `hint`, and
  // asks the claim that it writes through which pages are absent. If no place is free, a chunk that
  // `may_pass` takes the place of another chunk that passes, but of none that has blocks which the
  // tiers are about to get. One that `must_pass` takes those, too.
  enum class Pass : std::uint8_t { no, may_pass, must_pass };
  Claim make(const FileKey& key, std::uint32_t number, std::uint32_t wanted, Pass pass = Pass::no);
  // No place was free a moment ago.
  bool is_full() const;
  // Bytes for chunks that pass, once no place is free.
  std::uint64_t passing_bytes() const;
  // A place from which on `count` places are free, for the chunks of a file.
  std::uint32_t place_for(std::uint32_t count);

  // Memory for these pages, and a writable mapping of them. The caller holds the flight for them,
  // and none is present.
  base::Result<base::Mapping> window(const Claim& claim, const PageRun& pages);
  // Writes them by a number of the region's file, from memory that may not be there (EFAULT). The
  // same holds for the caller.
  base::Result<void> copy_in(int region_fd, const Claim& claim, const PageRun& pages,
                             const std::byte* from);
  // Before they are present: nobody has asked for them yet.
  void note_ahead(const Claim& claim, const PageRun& pages) const;
  // For the tiers (tier/block_writer.h, tier/cluster_blocks.h). A block of the chunk has become
  // whole: they may get it. `has_disk`: the disk has it already.
  void note_whole(const Claim& claim, bool has_disk = false) const;
  // They have these pages, or were offered them, or must not have them.
  void note_offered(const Claim& claim, const PageRun& pages) const;
  // The same of the cluster.
  void note_shared(const Claim& claim, const PageRun& pages) const;
  bool is_shared(const Claim& claim, const PageRun& pages) const;
  // How many blocks have ever become whole at this place, and in the region.
  std::uint32_t wholes(std::uint32_t place) const;
  std::uint64_t wholes() const {
    return region_->header().blocks_whole.load(std::memory_order_acquire);
  }
  // Any of them.
  bool is_offered(const Claim& claim, const PageRun& pages) const;
  // The chunk at this place, if it has blocks that became whole since it was last offered. Empty
  // where it has none.
  struct Offer {
    Claim claim;
    FileKey key;
    std::uint32_t number = 0;
    std::uint32_t whole = 0;  // how many blocks became whole
  };
  std::optional<Offer> offer_at(std::uint32_t place) const;
  // The chunk at this place, whatever was offered of it.
  std::optional<Offer> chunk_at(std::uint32_t place) const;
  bool has_offer(std::uint32_t place) const;
  // All that was whole then has been offered. Waiters go on.
  void end_offer(const Offer& offer) const;
  void tell_waiting() const;
  // How often an offer has ended so far.
  std::uint32_t offers_ended() const {
    return region_->header().chunks_written.load(std::memory_order_seq_cst);
  }
  // The last make() found no place but such as wait for the tiers.
  bool waits_for_tiers() const { return waits_for_tiers_; }
  // Until another offer than those `ended` has ended, so long at most.
  void wait_for_tiers(std::uint32_t ended, std::uint64_t at_most_ns) const;

  // The memory of the chunk at this place goes back to others, unless somebody has a claim on it or
  // a program has mapped it. Not what nobody has read yet, or the tiers are about to get, unless
  // `whatever`. Returns how many bytes there were.
  std::uint64_t give_back_memory(std::uint32_t place, bool whatever);
  // Nobody finds this chunk any more. Its place is that of an earlier version of the file.
  void forget(const FileKey& key, std::uint32_t number);
  // They hold the bytes of the file.
  void note_present(const Claim& claim, const PageRun& pages) const;

  Region& region() const { return *region_; }

 private:
  static inline constinit std::atomic<std::uint32_t> own_epoch{
      0};  // forks between the first process and this one

  Claim claim(std::uint32_t place) const;
  bool is_of(const ChunkRow& row, const FileKey& key, std::uint32_t number) const;
  Claim claim_if(std::uint32_t place, const FileKey& key, std::uint32_t number) const;
  // The place is then open, and the caller's to seal or to give back.
  bool take_place(std::uint32_t place, const FileKey& key, std::uint32_t number);
  // Which chunk gives its place: one of an earlier version of the file, or whichever is there, to
  // one that passes.
  enum class Replaced : std::uint8_t { former_version, any };
  bool take_replaced(std::uint32_t place, const FileKey& key, std::uint32_t number,
                     Replaced replaced);
  void write(std::uint32_t place, const FileKey& key, std::uint32_t number, bool passes) const;
  bool is_made_by_other(const FileKey& key, std::uint32_t number, std::uint32_t place,
                        std::uint32_t wanted, Claim& other) const;
  void give_back(std::uint32_t place) const;
  void remove_name(std::uint32_t place) const;
  void drop_unread(ChunkRow& row) const;
  bool insert(std::uint64_t hash, std::uint32_t place) const;
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

// Bytes of all large files in the region's memory, and how many of them were fetched ahead and not
// read yet.
struct ChunkFigures {
  std::uint64_t bytes = 0, unread = 0;
};
ChunkFigures figures_of_chunks(const Region& region);

// Frees the places that a process was changing when it died. The caller holds the lifecycle lock.
void forget_chunks_of(Region& region, std::uint32_t process_slot);

}  // namespace cube::cache
