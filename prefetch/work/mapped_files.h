// The large files that the program maps (cache/fill/large/large_file.h). The kernel reads the pages
// of a mapping. Threads of the block reader copy these pages to the cache's chunks for the next
// mapping, through the library's own mapping of the same bytes. If the program will read the whole
// mapping, the threads also read ahead of it, several parts at a time, through the kernel's pages.
// The program's own accesses then find these pages, and each byte leaves the origin once. On some
// mounts (FUSE), the kernel drops a file's pages at each open, so all pages ahead of the program
// are read again. Therefore the threads stay only a little ahead in a file that is read from end to
// end.
//
// Use: call add() for each new mapping, and unmapped() when the program unmaps it. The threads call
// bring_part() and look(). Thread-safe and lock-free, except forget(), which only a forked child
// may call; unmapped() and opened() are async-signal-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <span>

#include "cache/file_cache.h"
#include "prefetch/threads/claimed_row.h"
#include "prefetch/threads/event_count.h"

namespace cube::prefetch {

class MappedFiles {
 public:
  using LargeFile = cache::LargeFile;
  static constexpr std::size_t k_most = 512;  // mappings
  // `news` wakes the threads, which end when `is_stopping` is set.
  MappedFiles(cache::FileCache& cache, EventCount& news, const std::atomic<bool>& is_stopping)
      : cache_(cache), news_(news), is_stopping_(is_stopping) {}

  // Two mappings of the same bytes, from byte `begin` of the file on: the program's and the
  // library's own.
  struct Added {
    base::Mapping own;
    std::uint64_t begin = 0;
    const void* program_has = nullptr;  // the address of the program's mapping; see unmapped()
    // How many of the bytes the kernel already had when the program made its mapping. The kernel
    // did not read these bytes for the program.
    std::uint64_t before = 0;
    bool tells_pages = false;  // LargeFile::tells_pages
  };
  // Returns false if there is no room. The caller has counted `own` as one of the file's own
  // mappings; if add() returns false, undoing this count is left to the caller.
  bool add(LargeFile& file, Added&& added);
  // Drops the file's mappings, except one in which a thread is stuck for more than a second. Call
  // it after LargeFile::note_lock and before the lock is made.
  void let_go_of(LargeFile& file);
  // Notes that the program has opened the file. On some mounts (FUSE), the kernel then drops the
  // file's pages, including pages that no thread has copied yet.
  void opened(const LargeFile& file);
  // Notes that the program has unmapped these pages. Bytes that were read before are still copied.
  void unmapped(const void* at, std::size_t length);
  // Tells whether the kernel has read at least a twentieth of the file for mappings that the
  // program unmapped after a few reads each. If the program continues like this, it will read the
  // whole file, and the kernel may have dropped these pages. `begins`: the caller should have the
  // whole file fetched. `goes_on`: an earlier call has returned `begins`.
  enum class AllOver : std::uint8_t { no, begins, goes_on };
  AllOver all_over(const LargeFile& file);
  // Notes that the program has given this advice for these pages. MADV_WILLNEED: the pages are read
  // now; in a short range, the kernel has already read them. MADV_SEQUENTIAL: the mapping is read
  // from end to end. MADV_RANDOM: the mapping is not read ahead.
  void advised(const void* at, std::size_t length, int advice);

  // Reads and copies a part of a mapping that will be read whole. Returns false if there is no such
  // part.
  bool bring_part();
  // Copies the pages that the kernel has read, if the next look is due.
  void look();
  // The time until the next look.
  std::uint64_t pause_ns() const;

  void drop_all();
  void forget();

 private:
  // Any thread may use the atomics; only the owner of the row may use the other fields.
  struct Row : ClaimedRow {
    std::atomic<bool> is_left{false};         // the program has unmapped it
    std::atomic<bool> has_lost_pages{false};  // pages may have been dropped before any look saw
                                              // them
    std::atomic<bool> may_have_part{false};   // for bring_part()
    // Counts threads that use the file and the mapping without owning the row. The file and the
    // mapping stay until the last of these threads is done.
    std::atomic<std::uint32_t> users{0};
    std::atomic<bool> is_over{false};      // the mapping must be dropped; set by the owner or a
                                           // user
    std::atomic<std::uint64_t> before{0};  // Added::before, less what looks have found
    std::atomic<int> advice{0};            // MADV_NORMAL, SEQUENTIAL or RANDOM
    // The rest of the range that MADV_WILLNEED named, as offsets within the mapping.
    std::atomic<std::uint64_t> wanted{0}, wanted_end{0};
    LargeFile* file = nullptr;
    base::Mapping own;
    std::uint64_t begin = 0;
    bool tells_pages = false;
    LargeFile::Reading reading = LargeFile::Reading::unknown;
    // Offsets within the mapping: the first byte that no thread has begun to bring, and the first
    // byte that was not requested from the kernel.
    std::uint64_t next = 0, asked = 0;
    std::uint64_t wanted_asked = 0;  // like `asked`, in the wanted range
    // The program's thread that made the mapping, and this thread's page faults before that.
    std::atomic<long> thread{0};
    std::atomic<std::uint64_t> waited_faults{0}, other_faults{0};
    std::atomic<std::uint64_t> version{0};  // LargeFile::version_hash
    std::uint64_t began_ns = 0;             // base::monotonic_ns
    // The addresses at which the program has mapped them.
    std::atomic<std::uintptr_t> from{0}, to{0};
  };
  // Bytes of the file to bring now, and bytes to request from the kernel before that.
  struct Part {
    LargeFile::Range bring, ask;
  };

  // A mapping younger than this might be one of many short-lived ones.
  static constexpr std::uint64_t k_brief_ns = 1'000'000'000;

  std::optional<Part> next_part(Row& row);
  static std::optional<Part> wanted_part(Row& row);
  LargeFile::Reading reading_of(const Row& row);
  static LargeFile::Range range_of(const Row& row) {
    return {row.begin, std::min(row.begin + row.own.size(), row.file->size())};
  }
  bool may_go_on(const Row& row);
  void note_faults(const Row& row);
  void note_reading(Row& row, LargeFile::Reading reading);
  void count_kept(Row& row, std::uint64_t bytes);
  bool is_all_present(const Row& row);
  std::uint64_t keep(Row& row, int region_fd);
  void keep_last(Row& row);
  void drop(Row& row);
  void drop_left(Row& row);
  void give_back(Row& row);

  cache::FileCache& cache_;
  EventCount& news_;
  const std::atomic<bool>& is_stopping_;
  std::span<Row> rows() { return {rows_, reached_.load(std::memory_order_acquire)}; }

  // The bytes that the kernel has read for mappings that the program has unmapped. Files with the
  // same hash modulo the table's size share an entry.
  struct ReadAllOver {
    std::atomic<std::uint64_t> version{0}, bytes{0};
    std::atomic<std::uint64_t> begun_ns{0};  // base::monotonic_ns
  };
  ReadAllOver read_all_over_[64];
  ReadAllOver& read_all_over(std::uint64_t version) {
    return read_all_over_[version % std::size(read_all_over_)];
  }

  Row rows_[k_most];
  std::atomic<std::uint32_t> reached_{0};  // the index of the first row never filled
  std::atomic<bool> is_looking_{false};    // a thread looks at the mappings
  std::size_t first_to_keep_ = 0;          // the row at which the next look begins
  // Two times (base::monotonic_ns): when the next look is due, and until when unmapped mappings of
  // the program are dropped without a look.
  std::atomic<std::uint64_t> next_look_ns_{0}, earliest_look_ns_{0};
  std::atomic<std::uint32_t> count_{0};
  std::atomic<bool> is_narrow_{false};  // the kernel has dropped pages ahead of the program
  // Since when a part has been waiting for the program (base::monotonic_ns); 0 if none waits.
  std::atomic<std::uint64_t> waits_since_ns_{0};
};

}  // namespace cube::prefetch
