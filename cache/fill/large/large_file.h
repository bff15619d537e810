// A large file that a program has open. The program's fd refers to the origin's own file, and the
// kernel keeps the offset. (Objects of buckets have no fd; see large_object.cc.) Reads are answered
// from the file's chunks in the region (region/large/chunks.h). The pages of the chunks come from
// the origin or a tier, either when a program reads them or ahead of its reads.
//
// A read fetches the absent pages under the flight of their block. A read that does not continue a
// sequence fetches only its own pages. After a second such read of the same block, the whole block
// is fetched. A file that is read sequentially is read ahead: after each read, ahead() returns the
// range to fetch. If a tier has a block, the whole block is read from the tier (large_tier.cc).
//
// Objects live in a static pool of the process. A forked child may continue to use them.
// Thread-safe, lock-free and async-signal-safe. A signal handler that interrupts a fetch fetches
// nothing. Invariants: all pages belong to the version of the file that the stat at the open
// identifies. Pages are published only if a stat has shown this version less than 100 ms earlier,
// and only if the file was not changed through the shim since the stat. A file that was changed
// through the shim is served by the kernel.
#pragma once

#include <algorithm>
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
  // How many fds of the file were closed or replaced so far. To copy an fd of the file, load this
  // count, check that the fd refers to the file, and copy it. If the count is still the same, the
  // copy refers to the file. FdEpoch does the same for a single fd.
  using FdsLeft = std::uint32_t;

  // Begins to serve an open file on a mount. `key` is its path. Null: the kernel must serve the
  // file.
  static LargeFile* begin(CacheParts& parts, std::string_view key, int fd);
  // Begins to serve an object of a bucket, which has no fd (large_object.cc). Null: the object
  // cannot be served in blocks, or there are too many large files.
  static LargeFile* begin_object(CacheParts& parts, std::string_view key, const FileStat& stat);
  // Adds a user. Each user calls end(), and the last user's call frees the object.
  LargeFile* share() {
    refs_.fetch_add(1, std::memory_order_relaxed);
    return this;
  }
  void end();

  std::uint64_t size() const { return stat_.size; }
  // The stat of the version that is served.
  const FileStat& stat() const { return stat_; }

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
  // Called before an fd of the file is closed or replaced by another file. A lock must end when the
  // program closes its last fd. So if the program has a lock, fd_leaves() waits until the library
  // has closed its own copies of the fds, but at most a second.
  void fd_leaves() {
    fds_left_.fetch_add(1, std::memory_order_seq_cst);
    if (is_locked()) [[unlikely]]
      copies_.wait_for_none();
  }

  // The kinds of locks that belong to an open file: `flock`, and `other` for F_OFD_SETLK. Such a
  // lock ends with the last fd or mapping of the open file.
  enum class Lock : std::uint32_t { flock = 1, other = 2 };
  bool is_locked() const { return locks_.load(std::memory_order_seq_cst) != 0; }
  // Called before the lock is taken. From then on, the library adds no mapping of its own. The
  // caller must drop the existing ones.
  void note_lock(Lock lock) {
    locks_.fetch_or(static_cast<std::uint32_t>(lock), std::memory_order_seq_cst);
  }
  void note_unlock() {
    locks_.fetch_and(~static_cast<std::uint32_t>(Lock::flock), std::memory_order_seq_cst);
  }
  // Called after the program has taken a lock. If another process has written the file during the
  // wait for the lock, the kernel serves the file from now on.
  void look_after_lock(CacheParts& parts, int fd);

  // Counts the library's copies of the file's fds. Each copy exists only while a block is read.
  Uses& copies() { return copies_; }
  // Counts the library's own mappings of the file. Such mappings exist only while the program has
  // no lock.
  Uses& own_mappings() { return own_mappings_; }

  // Copies up to `n` bytes from offset `at` on. The range must lie within the file. Returns the
  // number of copied bytes; the kernel must read the rest. -EINTR: a signal ended the wait before
  // any byte was copied.
  long read(CacheParts& parts, const FdEpoch& fd, std::byte* to, std::size_t n, std::uint64_t at);

  // For objects of buckets: copies `n` bytes from offset `at` on, and reads ahead. The range must
  // lie within the object. Returns the number of copied bytes or -errno. After an error, the number
  // may be less than `n`. -ENOSPC: the chunks have no room.
  long read_object(CacheParts& parts, std::byte* to, std::size_t n, std::uint64_t at);
  // Fetches the bytes [begin, end) of an object into the chunks. Returns 0 or an errno. ENOSPC: the
  // chunks have no room.
  int bring_object(CacheParts& parts, std::uint64_t begin, std::uint64_t end);
  // A kernel file with all bytes of the object in this version. `flags` are those of the program's
  // call.
  base::Result<base::UniqueFd> copy_object(CacheParts& parts, int flags) const;
  // Copies `n` bytes from offset `at` on. False: some of these bytes are absent from the chunks.
  bool copy_if_present(CacheParts& parts, std::byte* to, std::size_t n, std::uint64_t at) const;
  // A record without data, for calls about the open object, such as fstat.
  const Record& record() const { return *reinterpret_cast<const Record*>(named_.record); }

  // A run of absent pages in one chunk of an object. Only the gateway fills such gaps: it writes
  // the bytes [at, at + bytes) of the object to room().
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
  // Finds the first gap in [begin, end). The range must lie in one chunk.
  Made make_gap(CacheParts& parts, std::uint64_t begin, std::uint64_t end, Gap& gap);
  // Called when the bytes of the gap have arrived. `is_ahead`: no program has asked for them yet.
  void fill_gap(CacheParts& parts, const Gap& gap, bool is_ahead, base::Stats& stats) const;

  // A range of bytes to fetch ahead.
  struct Range {
    std::uint64_t begin = 0, end = 0;
    // Whether chunks of this range may replace passing chunks if the memory is full.
    bool passes = true;
    bool is_empty() const { return begin >= end; }
  };
  // Called after each read of `n` bytes at offset `at`. Returns the range to fetch ahead, if any.
  Range ahead(CacheParts& parts, std::uint64_t at, std::size_t n);
  // Limits a requested range so that the end of the fetch does not evict its start. If the memory
  // is full, shortens a long range. Otherwise clears `passes` of a long range.
  Range wanted(CacheParts& parts, const Range& range) const;
  // The order of reads that the program has announced for this open file by fadvise or madvise.
  // `sequential`: blocks are fetched ahead in wide windows from the first read on. `random`:
  // nothing is fetched ahead.
  enum class Advice : std::uint8_t { none, sequential, random };
  void advise(Advice advice) { advice_.store(advice, std::memory_order_relaxed); }
  // Fetches the part of `range` that lies in its first block, through the caller's own fd. Stops if
  // fds_left() no longer returns `fds_left`. False: the caller must stop, too.
  bool fetch_ahead(CacheParts& parts, int fd, FdsLeft fds_left, const Range& range);
  // For prefetches of files that no program has asked for yet. Fetches the part of `range` that
  // lies in its first block, through the caller's own fd. Moves `range.begin` past this part, even
  // if the fetch fails. Waits at most a second for the block's flight, and checks `is_stopping`
  // between two reads. `asks_for_block`: requests the whole part from the origin at once.
  enum class Brought : std::uint8_t { here, no_room, not_here };
  struct Stretch {
    Brought what = Brought::not_here;
    std::uint64_t bytes = 0;  // the number of bytes that this call fetched
  };
  Stretch bring_ahead(CacheParts& parts, int fd, Range& range, const std::atomic<bool>& is_stopping,
                      bool asks_for_block);
  // On some FUSE mounts, an open makes the kernel drop all pages of the file, including pages that
  // are still being fetched. So an open waits for the threads that read the file ahead, and these
  // threads wait for an open in progress. A thread that reads ahead calls begin_reading(), and
  // holds the returned flight while its pages are being fetched. An open holds the flight of the
  // path, and calls await_readers(). Each wait lasts at most a second; begin_reading() also stops
  // waiting at `until_ns` (base::monotonic_ns). The result is empty if the waits were in vain. The
  // caller of begin_reading() must not hold another flight.
  SingleFlight::Ticket begin_reading(CacheParts& parts, std::uint64_t until_ns = UINT64_MAX) const;
  static void await_readers(CacheParts& parts, std::uint64_t path_hash);
  // How many bytes of `range` are present in the chunks. `path` and `stat` identify the file and
  // its version.
  static std::uint64_t present_bytes(CacheParts& parts, std::string_view path, const FileStat& stat,
                                     const Range& range);
  std::uint64_t present_bytes(CacheParts& parts, const Range& range) const;
  // Removes from the index all chunks that contain a part of `range`. The memory of these chunks is
  // not freed until the file is fetched again.
  static void forget(CacheParts& parts, std::string_view path, const FileStat& stat,
                     const Range& range);
  // Notes that a thread of the library uses the object to fetch the file ahead. A forked child does
  // not have this thread, so the child may reuse the object.
  void note_fetched_ahead() { is_fetched_ahead_.store(true, std::memory_order_relaxed); }
  // Whether there may be room for a new chunk. False: a recent search found no room.
  static bool may_have_room();
  // From now on, the library does not make the kernel read ahead, because the program's next open
  // may make the kernel drop the pages.
  void expect_drops() { kernel_pages_.store(KernelPages::none, std::memory_order_relaxed); }
  bool is_over() const { return is_over_.load(std::memory_order_relaxed); }
  // Whether this fd refers to the file, in the version that was opened. `fd` -1: checks the path
  // instead.
  bool is_version_of(int fd) const;

  // A present part of the file that a mapping can show. The piece stays at its place as long as the
  // region exists.
  struct Piece {
    std::uint64_t at = 0, bytes = 0;
    std::uint64_t in_region = 0;  // offset in the region's file
  };
  // Writes the present parts of `range` to `pieces`, in order, and returns their number. Removes
  // the part that it has examined from `range`; if `pieces` was large enough, `range` becomes
  // empty.
  std::size_t pieces(CacheParts& parts, Range& range, std::span<Piece> pieces) const;
  // Notes that a mapping of the program shows the chunks' bytes of this range.
  void note_shown(CacheParts& parts, const Range& range) const;
  bool is_same_file(const LargeFile& other) const { return key_ == other.key_; }
  // A hash of the path and the version.
  std::uint64_t version_hash() const { return key_.path ^ key_.version[0] ^ key_.version[1]; }
  bool may_be_shown(CacheParts& parts, int fd) { return is_current(parts, fd); }
  // Asks the server whether the file is still the version that was opened. If not, the kernel
  // serves it from now on.
  bool look_again(CacheParts& parts, int fd);
  // Whether the kernel tells this process which pages of the file are in memory. If the process
  // neither owns the file nor may write to it, the kernel reports all pages as present.
  bool tells_pages() const;
  // Copies pages that the kernel has in memory to the chunks, and returns the number of copied
  // bytes. `mapping` maps the file from its byte `begin` on. `region_fd`: the region's file, open
  // for writing. Empty result: the caller should stop.
  std::optional<std::uint64_t> keep_pages(CacheParts& parts, const base::Mapping& mapping,
                                          std::uint64_t begin, int region_fd);

  // How a program will probably read a mapped range. `in_order`: from start to end, because the
  // program has advised so, or because the file has a format that programs read in order
  // (weights_format.h). `whole`: all of it, in any order, because a tenth of the mapping is
  // present, and there is room for the rest.
  enum class Reading : std::uint8_t { unknown, in_order, whole };
  Reading reading_of(CacheParts& parts, const Range& mapped) const;
  // Whether the chunks have room for the absent part of the range. `present`: how many bytes of the
  // range are present.
  bool fits(CacheParts& parts, const Range& range, std::uint64_t present) const;
  // Whether the first bytes are present and show a format that programs read from end to end.
  bool is_of_whole_format(CacheParts& parts) const;
  // Whether the program has announced that it reads the file at random.
  bool is_read_at_random() const {
    return advice_.load(std::memory_order_relaxed) == Advice::random;
  }
  // Call it when a program maps the file. Returns whether this process and another living process
  // have mapped a file in common, like the ranks of a job.
  bool note_mapping_of_ranks(CacheParts& parts);
  // For a forked child: the ranks of the parent are not its own.
  static void forget_ranks();
  // How much one read of bring_to_map may fetch: little at first, and then what would arrive within
  // 50 ms at the rate of the last read. Use one object for all reads for a mapping.
  class Pace {
   public:
    std::uint64_t most_bytes() const { return most_bytes_; }
    void note(std::uint64_t bytes, std::uint64_t took_ns) {
      most_bytes_ = std::max(k_least, bytes * k_read_ns / std::max<std::uint64_t>(took_ns, 1));
    }

   private:
    static constexpr std::uint64_t k_least = 16 << 10, k_read_ns = 50'000'000;
    std::uint64_t most_bytes_ = k_least;
  };
  // Fetches the absent bytes of `range` before the program maps them, block by block or in smaller
  // parts, as `pace` says, and waits for blocks that other threads or processes are fetching.
  // Begins no wait and no read after `until_ns` (base::monotonic_ns). Returns whether all bytes of
  // the range are present. If not, the time is over, a read has failed or was interrupted, the file
  // has changed, or there is no room.
  bool bring_to_map(CacheParts& parts, const FdEpoch& fd, const Range& range,
                    std::uint64_t until_ns, Pace& pace);
  // Two functions for a mapped range that will be read as a whole. `mapping` and `begin` are as in
  // keep_pages. ask_mapped makes the kernel request the absent pages of `range` from the origin,
  // without waiting for them. bring_mapped waits for the absent pages of `range`, copies them to
  // the chunks, and returns the number of copied bytes. Skips pages that cannot be read, and blocks
  // that another process is fetching, except the first block of the file. Empty result: the caller
  // should stop.
  void ask_mapped(CacheParts& parts, const base::Mapping& mapping, std::uint64_t begin,
                  const Range& range) const;
  std::optional<std::uint64_t> bring_mapped(CacheParts& parts, const base::Mapping& mapping,
                                            std::uint64_t begin, const Range& range, int region_fd);

  // Opens the file again by its path. Empty: the open failed, or the path now names another
  // version.
  OriginFd reopen() const;

  // Reserves the pool's memory now instead of at the first begin(). False: there is no memory.
  static bool reserve();
  // The memory of the pool. Empty before it is mapped.
  static std::span<const std::byte> memory();
  // Call it in a forked child. Drops the uses by threads of the parent, which the child does not
  // have.
  static void forget_users();

 private:
  // `waits`: all places are taken by chunks that must first be offered to the tiers.
  enum class Fetched : std::uint8_t { here, at_origin, interrupted, waits };
  // The read that causes a fetch: either a read or mapping of the program, through the program's
  // fd, or a read ahead, through the caller's own fd.
  struct By {
    int fd = -1;
    const FdEpoch* of_program = nullptr;  // null: `fd` is not an fd of the program
    const FetchScope* scope = nullptr;
    Chunks::Pass pass = Chunks::Pass::no;
    std::uint64_t begin = 0, bytes = 0;  // the range of the program's whole read
    bool brings_block = false;           // fetches the whole block if none of its pages is present
    bool asks_for_block = false;         // see bring_ahead
    bool is_to_map = false;              // a mapping will show the bytes: see bring_to_map
    SingleFlight::Hold reading = {};     // from begin_reading, if a program maps the file
  };

  Chunks chunks(CacheParts& parts) const { return Chunks(parts.region); }
  static LargeFile* take(CacheParts& parts, std::string_view key, const FileStat& stat);
  // Copies the bytes from offset `at` on that are present in the same chunk. Returns their number.
  std::size_t copy_present(CacheParts& parts, std::byte* to, std::size_t n, std::uint64_t at) const;
  int ask_for_object(CacheParts& parts, std::uint64_t at, std::size_t n, bool is_sequence);
  void advance_object(CacheParts& parts, std::uint64_t end);
  // Whether a recent search found no room for a chunk.
  static bool is_full();
  static void forget_full();
  void note_flags(int fd, int flags);
  static std::uint64_t widest_window(const Chunks& chunks);
  bool is_current(CacheParts& parts, int fd);
  PageRun wanted_pages(CacheParts& parts, const Chunks::Claim& claim, const By& by,
                       std::uint64_t at, std::size_t n, std::uint64_t block);
  Fetched fetch(CacheParts& parts, const By& by, std::uint64_t at, std::size_t n);
  Fetched bring(CacheParts& parts, const By& by, std::uint32_t number, PageRun pages);
  // Fetches the absent pages of the block at offset `at` from a tier, and adds the number of
  // fetched bytes to `bytes`. `at_origin`: no tier has the block, or there is no place for it.
  Fetched bring_from_tier(CacheParts& parts, const By& by, std::uint64_t at, std::uint64_t& bytes);
  class FromTier;
  // Whether `range` covers the whole block in which it begins.
  bool is_whole_block(const Range& range, std::uint64_t block) const {
    return range.begin % block == 0 && range.end >= std::min(range.begin + block, stat_.size);
  }
  // Called at the end of a fetch with By::brings_block. If the block was not fetched, makes other
  // nodes stop waiting for it.
  void end_block(CacheParts& parts, const By& by, std::uint64_t at) const;
  // Called before pages are read from the origin. If the file has changed so recently that a later
  // stat would not reveal another change, these pages are kept from the tiers.
  void note_read_now(Chunks& chunks, const Chunks::Claim& claim, const PageRun& pages) const;
  // Called when pages of a block have become present. If the whole block is now present, marks it
  // as ready for the tiers. `has_disk`: the disk already has the block.
  void note_brought(CacheParts& parts, Chunks& chunks, const Chunks::Claim& claim, std::uint64_t at,
                    bool has_disk = false);
  // Handles Fetched::waits: waits for a moment. If too much time was spent on such waits, instead
  // allows the fetch to replace chunks that the tiers do not have yet.
  static Chunks::Pass after_wait(const Chunks& chunks, std::uint32_t ended, bool is_programs);
  // Fetches the absent pages among `pages` in steps, until `may_go_on` returns false. The caller
  // must have the flight of their block.
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
  // Counts the first use of pages that were fetched ahead: a program reads or maps them now.
  static void count_use(CacheParts& parts, const Chunks::Claim& claim, const PageRun& pages);
  // If the kernel keeps pages of the file, makes it request the whole range from the origin in
  // parallel. The following reads then find the pages in memory.
  void ask_kernel_for(int fd, std::uint64_t at, std::uint64_t bytes);
  bool kernel_keeps_pages(int fd);
  SingleFlight::Ticket begin_reading_by(CacheParts& parts, int fd,
                                        std::uint64_t until_ns = UINT64_MAX);
  // `to` must have room for whole pages.
  Fetched read_pages(CacheParts& parts, const By& by, std::uint64_t at, std::byte* to,
                     std::uint64_t bytes);
  bool may_publish(CacheParts& parts, const By& by);
  // Marks these pages as present. `window` contains `bytes` bytes of the file for these pages. The
  // last page may be incomplete. False: the bytes may belong to another version.
  bool publish(CacheParts& parts, const By& by, Chunks& chunks, const Chunks::Claim& claim,
               const PageRun& pages, std::byte* window, std::uint64_t bytes);
  Chunks::Claim find(const Chunks& chunks, std::uint32_t number) const;
  std::uint32_t place_of(Chunks& chunks, std::uint32_t number);
  bool is_block_present(CacheParts& parts, std::uint64_t at, std::uint64_t block) const;
  // `reads`: the pages may have to be read from the origin first.
  std::optional<std::uint64_t> keep_run(CacheParts& parts, const std::byte* from, std::uint64_t at,
                                        std::uint64_t end, int region_fd, bool reads);
  std::uint64_t block_hash(std::uint64_t at, std::uint64_t block) const;
  bool has_no_place(CacheParts& parts, std::uint64_t at) const;

  std::atomic<std::uint32_t> refs_{0};  // 0: the object is free
  std::atomic<FdsLeft> fds_left_{0};
  std::atomic<std::uint32_t> locks_{0};
  Uses copies_, own_mappings_;
  std::atomic<std::uint32_t> epoch_{
      0};  // the epoch of the file's writer stripe at the last revalidation
  std::atomic<std::uint64_t> region_{0};  // RegionHeader::created_ns of that region
  std::atomic<std::uint64_t> looked_ns_{
      0};  // base::coarse_monotonic_ns at the last stat that showed this version
  std::atomic<bool> is_renewing_{false};  // a thread is renewing the stat
  std::atomic<bool> is_over_{false};      // the file was changed, so the kernel serves it
  std::atomic<bool> is_fetched_ahead_{false};
  std::atomic<std::uint32_t> first_place_{0};  // place of the first chunk, plus one; 0: unknown
  // The members from here to wanted_block_ describe the sequence of reads. These members affect
  // only speed.
  std::atomic<Advice> advice_{Advice::none};
  std::atomic<std::uint64_t> next_{0}, ahead_end_{0}, window_{0};
  std::atomic<std::uint64_t> wanted_block_{0};  // the block to fetch as a whole, plus one; 0: none
  enum class KernelPages : std::uint8_t { unknown, none, kept };
  std::atomic<KernelPages> kernel_pages_{KernelPages::unknown};
  // With O_DIRECT, the memory address of a read must be a multiple of direct_memory_unit_, and its
  // offset and length must be multiples of direct_unit_. 0: the file was opened without O_DIRECT.
  std::uint32_t direct_memory_unit_ = 0, direct_unit_ = 0;
  FileKey key_;
  FileStat stat_{};
  // The path follows the record, as it does in the region. Only objects use the record.
  struct Named {
    alignas(Record) std::byte record[sizeof(Record)];
    char path[PATH_MAX];
  } named_{};
};

}  // namespace cube::cache
