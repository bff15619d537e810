// A large file that a program has open. The program's fd is the origin's own file, and the kernel
// keeps the offset. Reads are answered from the file's chunks in the region
// (region/large/chunks.h). The pages of a chunk are fetched from the origin or a tier. Pages are
// fetched when a program reads them, or ahead of the reads.
//
// A read fetches the absent pages. For each block there is only one flight on the node. A read that
// continues no sequence fetches only the pages that it wants. A second read of the same block
// fetches the whole block. A file that is read sequentially is read ahead: after each read, ahead()
// returns the range to fetch. If a tier has a block, the whole block is read from the tier
// (large_tier.cc).
//
// Objects live in a static pool of the process; a forked child may continue to use them.
// Thread-safe, lock-free and async-signal-safe. A signal handler that interrupts a fetch fetches
// nothing. Invariants: the pages belong to the version of the file that the stat of the open
// identifies. Pages are published only if a stat has shown that version less than 100 ms before,
// and the file was not changed through the shim since then. If a file was changed through the shim,
// the kernel serves it.
#pragma once

#include <atomic>
#include <climits>
#include <optional>
#include <span>

#include "cache/fill/cache_parts.h"
#include "cache/fill/fd_epoch.h"
#include "cache/fill/uses.h"
#include "cache/region/large/chunks.h"
#include "cache/region/posix_locks.h"

namespace cube::cache {

class FetchScope;

class LargeFile {
 public:
  // The number of fds that no longer refer to the file. To copy an fd of the file, load this count
  // first, then check that the fd still refers to the file, then copy it. FdEpoch does the same for
  // a single fd.
  using FdsLeft = std::uint32_t;

  // Begins to serve an open file of a mount with this path. Null: the kernel serves the file.
  static LargeFile* begin(CacheParts& parts, std::string_view key, int fd);
  // Begins to serve an object of a bucket, which has no fd (large_object.cc). Null: there are too
  // many large files.
  static LargeFile* begin_object(CacheParts& parts, std::string_view key, const FileStat& stat);
  // Adds a user. Each user calls end(), and the last user's call frees the object.
  LargeFile* share() {
    refs_.fetch_add(1, std::memory_order_relaxed);
    return this;
  }
  void end();

  std::uint64_t size() const { return stat_.size; }

  // Whether the file was opened with O_DIRECT. The kernel then refuses reads whose memory, offset
  // or length is not a multiple of the file system's unit.
  bool is_direct() const { return direct_unit_ != 0; }
  // Whether the kernel would accept this read of a file with O_DIRECT. False: the kernel must
  // answer the read.
  bool accepts(const void* to, std::size_t n, std::uint64_t at) const {
    return (reinterpret_cast<std::uintptr_t>(to) % direct_memory_unit_ | n % direct_unit_ |
            at % direct_unit_) == 0;
  }

  FdsLeft fds_left() const { return fds_left_.load(std::memory_order_seq_cst); }
  // Called before an fd of the file is closed or replaced by another file. A lock of the program
  // must end with the program's last fd. So this waits until the library has closed its copies of
  // fds, but at most a second.
  void fd_leaves() {
    fds_left_.fetch_add(1, std::memory_order_seq_cst);
    if (is_locked()) [[unlikely]]
      copies_.wait_for_none();
  }

  // A lock of the program that belongs to an open file (flock, F_OFD_SETLK). The lock ends with the
  // last fd or mapping of that open file.
  enum class Lock : std::uint32_t { flock = 1, other = 2 };
  bool is_locked() const { return locks_.load(std::memory_order_seq_cst) != 0; }
  // Called before the lock is taken. Makes the library release its own mappings of the file.
  void note_lock(Lock lock) {
    locks_.fetch_or(static_cast<std::uint32_t>(lock), std::memory_order_seq_cst);
  }
  void note_unlock() {
    locks_.fetch_and(~static_cast<std::uint32_t>(Lock::flock), std::memory_order_seq_cst);
  }
  // Called after the program has got a lock. If another process has written the file while the
  // program waited for the lock, the kernel serves the file from now on.
  void look_after_lock(CacheParts& parts, int fd);

  // The library's copies of the file's fds. Each copy lasts for the read of a block.
  Uses& copies() { return copies_; }
  // The library's own mappings through these fds. Such mappings exist only while the program has no
  // lock.
  Uses& own_mappings() { return own_mappings_; }

  // Copies up to n bytes from offset `at` on, all of which lie below the file's end. Returns the
  // number of copied bytes; the kernel must read the rest. -EINTR: a signal has ended the wait
  // before anything was copied.
  long read(CacheParts& parts, const FdEpoch& fd, std::byte* to, std::size_t n, std::uint64_t at);

  // For objects of buckets. read_object copies n bytes from offset `at` on, all of which lie below
  // the object's end, and reads ahead. read_object returns the number of copied bytes, which is
  // less than n only after an error, or -errno. -ENOSPC: the chunks have no room.
  long read_object(CacheParts& parts, std::byte* to, std::size_t n, std::uint64_t at);
  // Fetches the bytes [begin, end) into the chunks, as far as there is room. Returns 0 or an errno.
  int bring_object(CacheParts& parts, std::uint64_t begin, std::uint64_t end);
  // A kernel file with all bytes of this version. `flags` are those of the program's call.
  base::Result<base::UniqueFd> copy_object(CacheParts& parts, int flags) const;
  // Copies n bytes from offset `at` on. False: some of these bytes are absent.
  bool copy_if_present(CacheParts& parts, std::byte* to, std::size_t n, std::uint64_t at) const;
  // A record without bytes: it answers calls about the open object, such as fstat.
  const Record& record() const { return *reinterpret_cast<const Record*>(named_.record); }

  // Absent pages of one chunk of an object, for the gateway. Only the gateway writes such pages: it
  // puts the bytes [at, at + bytes) of the object into room().
  class Gap {
   public:
    std::uint64_t at = 0, bytes = 0;
    std::byte* room() const { return window_.data(); }

   private:
    friend LargeFile;
    Chunks::Claim claim_;
    base::Mapping window_;
    PageRun pages_;
  };
  enum class Made : std::uint8_t { gap, here, no_room };
  // The first absent pages of [begin, end), which lies in one chunk.
  Made make_gap(CacheParts& parts, std::uint64_t begin, std::uint64_t end, Gap& gap);
  // Called when the bytes have arrived. `is_ahead`: no program has asked for them yet.
  void fill_gap(CacheParts& parts, const Gap& gap, bool is_ahead, base::Stats& stats) const;

  // A range of bytes to fetch ahead.
  struct Range {
    std::uint64_t begin = 0, end = 0;
    // If the memory is full, the chunks of this range may replace other passing chunks.
    bool passes = true;
    bool is_empty() const { return begin >= end; }
  };
  Range ahead(CacheParts& parts, std::uint64_t at, std::size_t n);
  // The part of a requested range that is worth fetching. The part must be so short that fetching
  // its end does not evict its start.
  Range wanted(CacheParts& parts, const Range& range) const;
  // How the program has announced that it will read this open file (fadvise, madvise).
  // `sequential`: the next blocks are fetched in wide windows from the first read on. `random`:
  // nothing is fetched ahead.
  enum class Advice : std::uint8_t { none, sequential, random };
  void advise(Advice advice) { advice_.store(advice, std::memory_order_relaxed); }
  // Fetches the pages of `range` that lie in its first block, through the caller's own fd. Fetches
  // nothing if the number of fds that left the file is no longer `fds_left`. False: the caller must
  // stop.
  bool fetch_ahead(CacheParts& parts, int fd, FdsLeft fds_left, const Range& range);
  // For prefetches of files that no program has asked for yet. bring_ahead fetches the part of
  // `range` that lies in its first block, through the caller's own fd, and moves `range.begin` past
  // that part, even if the fetch fails. bring_ahead waits at most a second for the block's flight,
  // and checks `is_stopping` between two reads. `asks_for_block`: requests the whole part from the
  // origin in one step.
  enum class Brought : std::uint8_t { here, no_room, not_here };
  struct Stretch {
    Brought what = Brought::not_here;
    std::uint64_t bytes = 0;  // the number of bytes that this call fetched
  };
  Stretch bring_ahead(CacheParts& parts, int fd, Range& range, const std::atomic<bool>& is_stopping,
                      bool asks_for_block);
  // On some mounts (FUSE), an open makes the kernel drop all pages of the file, including those
  // that are still being fetched. So opens of a file and threads that read it ahead wait for each
  // other. A thread that reads ahead holds the flight of begin_reading() while its pages are being
  // fetched. An open holds the flight of the path, and calls await_readers(). Each wait lasts at
  // most a second. A caller of begin_reading() must not hold another flight; it begins the flight
  // of a block afterwards.
  SingleFlight::Ticket begin_reading(CacheParts& parts) const;
  static void await_readers(CacheParts& parts, std::uint64_t path_hash);
  // How many bytes of `range` are present in the chunks. `path` and `stat` identify the file and
  // its version.
  static std::uint64_t present_bytes(CacheParts& parts, std::string_view path, const FileStat& stat,
                                     const Range& range);
  std::uint64_t present_bytes(CacheParts& parts, const Range& range) const;
  // Removes the chunks that contain a part of `range` from the index. These chunks keep their
  // memory until the file is fetched again.
  static void forget(CacheParts& parts, std::string_view path, const FileStat& stat,
                     const Range& range);
  // Notes that a thread fetches the file. A forked child does not have that thread, so the child
  // may reuse the object.
  void note_fetched_ahead() { is_fetched_ahead_.store(true, std::memory_order_relaxed); }
  // Whether a new chunk may find room. False: a recent search found none.
  static bool may_have_room();
  // From now on, requests no pages from the kernel ahead of a read, because the program's next open
  // may make the kernel drop them.
  void expect_drops() { kernel_pages_.store(KernelPages::none, std::memory_order_relaxed); }
  bool is_over() const { return is_over_.load(std::memory_order_relaxed); }
  // Whether this fd refers to the file in the version that was opened. `fd` -1: checks the path
  // instead.
  bool is_version_of(int fd) const;

  // A present part of the file, for a mapping. The part stays at its place as long as the region
  // exists.
  struct Piece {
    std::uint64_t at = 0, bytes = 0;
    std::uint64_t in_region = 0;  // offset in the region's file
  };
  // Writes the present parts of `range` to `pieces`, in order, and returns their number. Sets
  // `range` to the rest, which is empty if no parts are left.
  std::size_t pieces(CacheParts& parts, Range& range, std::span<Piece> pieces) const;
  // Notes that a mapping of the program shows the chunks' bytes of this range.
  void note_shown(CacheParts& parts, const Range& range) const;
  bool is_same_file(const LargeFile& other) const { return key_ == other.key_; }
  // A hash of the path and the version.
  std::uint64_t version_hash() const { return key_.path ^ key_.version[0] ^ key_.version[1]; }
  bool may_be_shown(CacheParts& parts, int fd) { return is_current(parts, fd); }
  // Whether the kernel tells this process which pages of the file are in memory. To a process that
  // neither owns the file nor may write to it, the kernel reports all pages as present.
  bool tells_pages() const;
  // Copies pages that the kernel has in memory to the chunks, and returns the number of copied
  // bytes. `mapping` maps the file from its byte `begin` on. `region_fd`: the region's file, open
  // for writing. Empty result: the caller should stop.
  std::optional<std::uint64_t> keep_pages(CacheParts& parts, const base::Mapping& mapping,
                                          std::uint64_t begin, int region_fd);

  // How a mapped range will be read. `in_order`: from one end to the other, because the program has
  // advised so, or because programs read files of this format in order (weights_format.h). `whole`:
  // as a whole, in any order, because a tenth of the mapping is present and there is room for all
  // of it.
  enum class Reading : std::uint8_t { unknown, in_order, whole };
  Reading reading_of(CacheParts& parts, const Range& mapped) const;
  // Whether memory has room for the absent part of the range.
  bool fits(CacheParts& parts, const Range& range, std::uint64_t present) const;
  // Whether the first bytes are present and show a format that programs read from end to end.
  bool is_of_whole_format(CacheParts& parts) const;
  // For a mapped range that will be read as a whole. `mapping` is as in keep_pages. ask_mapped
  // makes the kernel request the absent pages of `range` from the origin, without waiting.
  // bring_mapped waits until the kernel has the absent pages of one block, copies them to the
  // chunks, and returns the number of copied bytes. Pages that cannot be read, and pages that
  // another process fetches, are skipped. Empty result: the caller should stop.
  void ask_mapped(CacheParts& parts, const base::Mapping& mapping, std::uint64_t begin,
                  const Range& range) const;
  std::optional<std::uint64_t> bring_mapped(CacheParts& parts, const base::Mapping& mapping,
                                            std::uint64_t begin, const Range& range, int region_fd);

  // Opens the file again by its path. Empty: the file has changed to another version.
  OriginFd reopen() const;

  // Reserves the pool's memory now instead of at the first begin(). False: there is no memory.
  static bool reserve();
  // The memory of the pool. Empty before it is mapped.
  static std::span<const std::byte> memory();
  // In a forked child: drops the uses by threads of the parent.
  static void forget_users();

 private:
  // waits: all places hold chunks that must first be offered to the tiers.
  enum class Fetched : std::uint8_t { here, at_origin, interrupted, waits };
  // A fetch, either for a program's read through the program's fd, or ahead of reads through the
  // caller's own fd.
  struct By {
    int fd = -1;
    const FdEpoch* of_program = nullptr;  // the epoch of that fd; null: not a program's fd
    const FetchScope* scope = nullptr;
    Chunks::Pass pass = Chunks::Pass::no;
    std::uint64_t begin = 0, bytes = 0;  // the range of the program's whole read
    bool brings_block = false;           // fetches the whole block if none of its pages is present
    bool asks_for_block = false;         // see bring_ahead
  };

  Chunks chunks(CacheParts& parts) const { return Chunks(parts.region); }
  static LargeFile* take(CacheParts& parts, std::string_view key, const FileStat& stat);
  // Copies the present bytes of the chunk that contains offset `at`. Returns their number.
  std::size_t copy_present(CacheParts& parts, std::byte* to, std::size_t n, std::uint64_t at) const;
  int ask_for_object(CacheParts& parts, std::uint64_t at, std::size_t n, bool is_sequence);
  void advance_object(CacheParts& parts, std::uint64_t end);
  // Whether a recent search found no room for a chunk.
  static bool is_full();
  static void forget_full();
  void note_flags(int fd, int flags);
  static std::uint64_t widest_window(const Chunks& chunks);
  bool is_current(CacheParts& parts, int fd);
  bool look_again(CacheParts& parts, int fd);
  PageRun wanted_pages(CacheParts& parts, const Chunks::Claim& claim, const By& by,
                       std::uint64_t at, std::size_t n, std::uint64_t block);
  Fetched fetch(CacheParts& parts, const By& by, std::uint64_t at, std::size_t n);
  Fetched bring(CacheParts& parts, const By& by, std::uint32_t number, PageRun pages);
  // Fetches the absent pages of the block at offset `at` from a tier, and adds the number of
  // fetched bytes to `bytes`. at_origin: no tier has the block, or there is no place for it.
  Fetched bring_from_tier(CacheParts& parts, const By& by, std::uint64_t at, std::uint64_t& bytes);
  class FromTier;
  // Whether `range` covers the whole block in which it begins.
  bool is_whole_block(const Range& range, std::uint64_t block) const {
    return range.begin % block == 0 && range.end >= std::min(range.begin + block, stat_.size);
  }
  // Ends a fetch with By::brings_block. If the block was not fetched, other nodes stop waiting for
  // it.
  void end_block(CacheParts& parts, const By& by, std::uint64_t at) const;
  // Called before pages are read from the origin. If the file has changed so recently that a later
  // stat would prove nothing, the tiers do not get these pages.
  void note_read_now(Chunks& chunks, const Chunks::Claim& claim, const PageRun& pages) const;
  // Called when pages of a block have become present. If the block is now whole, it may be offered
  // to the tiers. `has_disk`: the disk already has the block.
  void note_brought(CacheParts& parts, Chunks& chunks, const Chunks::Claim& claim, std::uint64_t at,
                    bool has_disk = false);
  // Handles Fetched::waits. Waits for a moment. If too much time was already spent on waiting,
  // allows the fetch to replace chunks that have not yet reached the tiers.
  static Chunks::Pass after_wait(const Chunks& chunks, std::uint32_t ended, bool is_programs);
  // Fetches the absent pages among `pages` in steps. The caller must have the flight of their
  // block. Calls `may_go_on` before each step.
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
  // Counts pages that were fetched ahead and that a program now reads or maps.
  static void count_use(CacheParts& parts, const Chunks::Claim& claim, const PageRun& pages);
  // If the kernel keeps pages of the file, makes it request the whole range from the origin in
  // parallel. The following reads then cause no further readahead.
  void ask_kernel_for(int fd, std::uint64_t at, std::uint64_t bytes);
  bool kernel_keeps_pages(int fd);
  SingleFlight::Ticket begin_reading_by(CacheParts& parts, int fd);
  // `to` has room for whole pages.
  Fetched read_pages(CacheParts& parts, const By& by, std::uint64_t at, std::byte* to,
                     std::uint64_t bytes);
  bool may_publish(CacheParts& parts, const By& by);
  // Makes these pages present. `window` holds their `bytes` bytes. False: the bytes may be of
  // another version.
  bool publish(CacheParts& parts, const By& by, Chunks& chunks, const Chunks::Claim& claim,
               const PageRun& pages, std::byte* window, std::uint64_t bytes);
  Chunks::Claim find(const Chunks& chunks, std::uint32_t number) const;
  std::uint32_t place_of(Chunks& chunks, std::uint32_t number);
  bool is_block_present(CacheParts& parts, std::uint64_t at, std::uint64_t block) const;
  // `reads`: whether the pages must be read first.
  std::optional<std::uint64_t> keep_run(CacheParts& parts, const std::byte* from, std::uint64_t at,
                                        std::uint64_t end, int region_fd, bool reads);
  std::uint64_t block_hash(std::uint64_t at, std::uint64_t block) const;
  bool has_no_place(CacheParts& parts, std::uint64_t at) const;

  std::atomic<std::uint32_t> refs_{0};  // 0: the object is free
  std::atomic<FdsLeft> fds_left_{0};
  std::atomic<std::uint32_t> locks_{0};
  Uses copies_, own_mappings_;
  std::atomic<std::uint32_t> epoch_{
      0};  // the epoch of the file's stripe of writers at the last revalidation
  std::atomic<std::uint64_t> region_{0};  // RegionHeader::created_ns of that region
  std::atomic<std::uint64_t> looked_ns_{
      0};  // base::coarse_monotonic_ns of the last stat that showed this version
  std::atomic<bool> is_renewing_{false};  // a thread is making the next such stat
  std::atomic<bool> is_over_{false};      // the file was changed, so the kernel serves it
  std::atomic<bool> is_fetched_ahead_{false};
  std::atomic<std::uint32_t> first_place_{0};  // place of the first chunk, plus one; 0: unknown
  // The members up to key_ describe the sequence of reads; they affect only speed.
  std::atomic<Advice> advice_{Advice::none};
  std::atomic<std::uint64_t> next_{0}, ahead_end_{0}, window_{0};
  std::atomic<std::uint64_t> wanted_block_{0};  // the block to fetch as a whole, plus one; 0: none
  enum class KernelPages : std::uint8_t { unknown, none, kept };
  std::atomic<KernelPages> kernel_pages_{KernelPages::unknown};
  // With O_DIRECT, the address of a read's memory must be a multiple of the first unit; the offset
  // and length of the read must be multiples of the second unit. 0: the file was opened without
  // O_DIRECT.
  std::uint32_t direct_memory_unit_ = 0, direct_unit_ = 0;
  FileKey key_;
  FileStat stat_{};
  // The path follows the record, as in the region. The record is used only for an object.
  struct Named {
    alignas(Record) std::byte record[sizeof(Record)];
    char path[PATH_MAX];
  } named_{};
};

}  // namespace cube::cache
