// A large file that a program has open. Its number is the origin's own, and the kernel keeps the
// offset. Reads are answered from the file's chunks in the region (region/chunks.h), whose pages
// come from the origin as they are read, or ahead.
//
// A read that finds a page absent fetches it: one fetch for each block on the node. A read that is
// no part of a sequence fetches the pages that it asks for and no more, until a second read falls
// into the same block, which then comes as a whole. A file that is read from one end to the other
// is read ahead: after each read, ahead() says how far. A block that a tier has comes from there,
// as a whole (large_tier.cc).
//
// Invariants: the pages belong to a version of the file, by the stat of the open. Pages are
// published only if the file was of that version less than 100 ms before, and if nothing has
// changed it through the shim. A file that was changed through the shim is left to the kernel.
// Objects live in a static pool of the process; a forked child may go on with them. Thread safety:
// all of it, lock-free; async-signal-safe. In a handler that interrupts a fetch nothing is fetched.
#pragma once

#include <atomic>
#include <climits>
#include <optional>
#include <span>

#include "cache/fill/cache_parts.h"
#include "cache/fill/uses.h"
#include "cache/region/large/chunks.h"

namespace cube::cache {

class FetchScope;

class LargeFile {
 public:
  // A count of the numbers that have left the file, which a reader takes before it looks whether
  // its number is still the file's.
  using FdEpoch = std::uint32_t;

  // Takes an open file of a mount: `key` is its path, `fd` its number. Null: the file is left to
  // the kernel.
  static LargeFile* begin(CacheParts& parts, std::string_view key, int fd);
  // Another user of it; the last one ends it.
  LargeFile* share() {
    refs_.fetch_add(1, std::memory_order_relaxed);
    return this;
  }
  void end();

  std::uint64_t size() const { return stat_.size; }

  FdEpoch fd_epoch() const { return fd_epoch_.load(std::memory_order_seq_cst); }
  // Before a number is closed, or becomes another file. A lock of the program's ends with its last
  // number, so the copies of numbers that are in use are waited for, a second at most.
  void fd_leaves() {
    fd_epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (is_locked()) [[unlikely]]
      copies_.wait_for_none();
  }

  // The program has a lock that belongs to its open file (flock, F_OFD_SETLK), and that goes with
  // the last number or mapping.
  enum class Lock : std::uint32_t { flock = 1, other = 2 };
  bool is_locked() const { return locks_.load(std::memory_order_seq_cst) != 0; }
  // Before the lock is made; whoever has a mapping of ours for the file lets go of it.
  void note_lock(Lock lock) {
    locks_.fetch_or(static_cast<std::uint32_t>(lock), std::memory_order_seq_cst);
  }
  void note_unlock() {
    locks_.fetch_and(~static_cast<std::uint32_t>(Lock::flock), std::memory_order_seq_cst);
  }
  // After a lock that was perhaps waited for: a file that another has written is the kernel's from
  // then on.
  void look_after_lock(CacheParts& parts, int fd);

  // Copies of its numbers, each for the read of a block.
  Uses& copies() { return copies_; }
  // Mappings of our own by its numbers, only without locks.
  Uses& own_mappings() { return own_mappings_; }

  // Copies up to n bytes from `at` on, as far as they can be had without the kernel's read; they
  // are below the file's end. -EINTR: a signal that is to end the wait, and nothing was copied.
  long read(CacheParts& parts, int fd, FdEpoch fd_epoch, std::byte* to, std::size_t n,
            std::uint64_t at);

  // Bytes to fetch ahead after a read of [at, at + n): of a sequence of reads, the next blocks; of
  // a second read of a block, all of it. Empty for most.
  struct Range {
    std::uint64_t begin = 0, end = 0;
    // Once the memory is full, its chunks may take the places of others that pass.
    bool passes = true;
    bool is_empty() const { return begin >= end; }
  };
  Range ahead(CacheParts& parts, std::uint64_t at, std::size_t n);
  // What to fetch ahead of a range that a program has asked for: the memory must not lose the begin
  // of it to its end.
  Range wanted(CacheParts& parts, const Range& range) const;
  // How the program says that it will read this open file: from one end to the other, whose next
  // blocks then come in wide windows from the first read on, or at random, for which nothing is
  // fetched ahead.
  enum class Advice : std::uint8_t { none, sequential, random };
  void advise(Advice advice) { advice_.store(advice, std::memory_order_relaxed); }
  // The pages of `range` that lie in its first block, by a number of the caller's own, unless a
  // number has left since `numbers`. False: do not go on.
  bool fetch_ahead(CacheParts& parts, int fd, FdEpoch fd_epoch, const Range& range);
  // For who fetches files that no program has asked for yet: the part of [begin, end) that lies in
  // the block at its begin, by a number of the caller's own. `begin` is moved behind it, whatever
  // came of it. Waits for another's fetch of the block, a second at most. Looks at `is_stopping`
  // between two reads.
  enum class Brought : std::uint8_t { here, no_room, not_here };
  struct Stretch {
    Brought what = Brought::not_here;
    std::uint64_t bytes = 0;  // that were fetched by this call
  };
  Stretch bring_ahead(CacheParts& parts, int fd, Range& range,
                      const std::atomic<bool>& is_stopping);
  // How many bytes of [begin, end) are present of the file at this path, of the version with this
  // stat.
  static std::uint64_t present_bytes(CacheParts& parts, std::string_view path, const FileStat& stat,
                                     const Range& range);
  std::uint64_t present_bytes(CacheParts& parts, const Range& range) const;
  // The chunks that hold a part of it are not found any more. They keep their memory until the file
  // is fetched again.
  static void forget(CacheParts& parts, std::string_view path, const FileStat& stat,
                     const Range& range);
  // It is fetched by a thread that a forked child does not have: the child may take its place.
  void note_fetched_ahead() { is_fetched_ahead_.store(true, std::memory_order_relaxed); }
  // False: none was found a moment ago.
  static bool may_have_room();
  bool is_over() const { return is_over_.load(std::memory_order_relaxed); }
  // Does this number lead to the file, and to the version that was opened?
  bool is_version_of(int fd) const;

  // The parts of [begin, end) that are present, in order, for a mapping: they stay where they are
  // while the region lives.
  struct Piece {
    std::uint64_t at = 0, bytes = 0;
    std::uint64_t in_region = 0;  // offset in the region's file
  };
  // How many were put into `pieces`. The range begins behind them then, and is empty where there
  // are no more.
  std::size_t pieces(CacheParts& parts, Range& range, std::span<Piece> pieces) const;
  // A mapping of the program shows these bytes of chunks.
  void note_shown(CacheParts& parts, const Range& range) const;
  bool is_same_file(const LargeFile& other) const { return key_ == other.key_; }
  bool may_be_shown(CacheParts& parts, int fd) { return is_current(parts, fd); }
  // May the kernel say which pages of the file it has in memory? To a stranger it says that it has
  // all.
  bool tells_pages() const;
  // Copies to the chunks what the kernel has of the file in memory: `mapping` is of the file, from
  // its byte `begin` on. `region_fd`: the region's file, for writing. How many bytes; nothing where
  // it is of no use to go on.
  std::optional<std::uint64_t> keep_pages(CacheParts& parts, const base::Mapping& mapping,
                                          std::uint64_t begin, int region_fd);

  // The file opened anew; nothing where it is another version by now.
  base::UniqueFd reopen() const;

  // The memory of all of them, now and not at the first begin(). False: there is none.
  static bool prepare();
  // Empty before the first begin().
  static std::span<const std::byte> memory();
  // In a forked child: a thread of the parent may be at one.
  static void forget_users();

 private:
  // waits: the tiers are to get what has the places first.
  enum class Fetched : std::uint8_t { here, at_origin, interrupted, waits };
  // A fetch for a program's read, by its number; or one ahead, by a number of the caller's own.
  struct By {
    int fd = -1;
    bool is_programs = false;
    FdEpoch fd_epoch = 0;
    const FetchScope* scope = nullptr;
    Chunks::Pass pass = Chunks::Pass::no;
    std::uint64_t begin = 0, bytes = 0;  // of all that the program reads at once
    bool brings_block = false;           // all of the block, if no page of it is there
  };

  Chunks chunks(CacheParts& parts) const { return Chunks(parts.region); }
  // A moment ago there was no room for a chunk.
  static bool is_full();
  static std::uint64_t widest_window(const Chunks& chunks);
  bool is_current(CacheParts& parts, int fd);
  bool look_again(CacheParts& parts, int fd);
  PageRun wanted_pages(const Chunks::Claim& claim, const By& by, std::uint64_t at, std::size_t n,
                       std::uint64_t block);
  Fetched fetch(CacheParts& parts, const By& by, std::uint64_t at, std::size_t n);
  Fetched bring(CacheParts& parts, const By& by, std::uint32_t number, PageRun pages);
  // The absent pages of the block at `at`, from a tier. at_origin: no tier has it, or there is no
  // place. `bytes`: plus what came.
  Fetched bring_from_tier(CacheParts& parts, const By& by, std::uint64_t at, std::uint64_t& bytes);
  class FromTier;
  // Is all of a block of the file in [begin, end)?
  bool is_whole_block(const Range& range, std::uint64_t block) const {
    return range.begin % block == 0 && range.end >= std::min(range.begin + block, stat_.size);
  }
  // The end of a fetch By::brings_block. Other nodes that wait for the block need not, if it has
  // not come.
  void end_block(CacheParts& parts, const By& by, std::uint64_t at) const;
  // Before pages are read from the origin: it keeps those from the tiers that may not be proven
  // later.
  void note_read_now(Chunks& chunks, const Chunks::Claim& claim, const PageRun& pages) const;
  // Pages of a block have become present: if it is whole by now, the tiers may get it. `has_disk`:
  // the disk has it already.
  void note_brought(CacheParts& parts, Chunks& chunks, const Chunks::Claim& claim, std::uint64_t at,
                    bool has_disk = false);
  // What a caller does about Fetched::waits: waits for a moment, or goes on without the tiers, if
  // waiting takes too long already.
  static Chunks::Pass after_wait(const Chunks& chunks, std::uint32_t ended, bool is_programs);
  // The absent ones of these pages, some at once. The caller has the flight of their block.
  // `may_go_on` is asked before each step.
  enum class Steps : std::uint8_t { done, ended, failed, waits };
  template <typename MayGoOn>
  Steps bring_in_steps(CacheParts& parts, const By& by, std::uint32_t number, PageRun pages,
                       const SingleFlight::Ticket& ticket, std::uint64_t& bytes,
                       const MayGoOn& may_go_on);
  class Window;
  struct Room;
  bool make_room(Chunks& chunks, std::uint32_t number, Chunks::Pass pass, PageRun& pages,
                 Room& room);
  Chunks::Pass pass_of(const By& by, std::uint64_t block) const;
  // A program reads or maps these pages.
  static void count_use(CacheParts& parts, const Chunks::Claim& claim, const PageRun& pages);
  // Has the kernel ask the origin for all of it at once, if it keeps pages of the file: it asks for
  // no more then, as it would for the reads that follow.
  void ask_kernel_for(int fd, std::uint64_t at, std::uint64_t bytes);
  Fetched read_pages(CacheParts& parts, const By& by, std::uint64_t at, std::byte* to,
                     std::uint64_t bytes);
  bool may_publish(CacheParts& parts, const By& by);
  Chunks::Claim find(const Chunks& chunks, std::uint32_t number) const;
  std::uint32_t place_of(Chunks& chunks, std::uint32_t number);
  bool is_block_present(CacheParts& parts, std::uint64_t at, std::uint64_t block) const;
  std::optional<std::uint64_t> keep_run(CacheParts& parts, const std::byte* from, std::uint64_t at,
                                        std::uint64_t end, int region_fd);
  std::uint64_t block_hash(std::uint64_t at, std::uint64_t block) const;
  bool has_no_place(CacheParts& parts, std::uint64_t at) const;

  std::atomic<std::uint32_t> refs_{0};  // 0: it is free
  std::atomic<FdEpoch> fd_epoch_{0};
  std::atomic<std::uint32_t> locks_{0};
  Uses copies_, own_mappings_;
  std::atomic<std::uint32_t> epoch_{0};   // of the file's stripe of writers, when it was looked at
  std::atomic<std::uint64_t> region_{0};  // RegionHeader::created_ns of the region of that epoch
  std::atomic<std::uint64_t> looked_ns_{
      0};  // base::coarse_monotonic_ns, when its stat was last that of this version
  std::atomic<bool> is_over_{false};  // it was changed: the kernel's from now on
  std::atomic<bool> is_fetched_ahead_{false};
  std::atomic<std::uint32_t> first_place_{0};  // of its first chunk, plus one; 0: not known yet
  // They describe the sequence of reads, and serve speed alone.
  std::atomic<Advice> advice_{Advice::none};
  std::atomic<std::uint64_t> next_{0}, ahead_end_{0}, window_{0};
  std::atomic<std::uint64_t> wanted_block_{0};  // to come as a whole, plus one; 0: none
  enum class KernelPages : std::uint8_t { unknown, none, kept };
  std::atomic<KernelPages> kernel_pages_{KernelPages::unknown};
  FileKey key_;
  FileStat stat_{};
  char path_[PATH_MAX] = {};
};

}  // namespace cube::cache
