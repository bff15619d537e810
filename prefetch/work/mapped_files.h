// The files in blocks that the program maps (cache/fill/large/large_file.h). The kernel reads their
// pages; threads of the block reader copy these pages to the chunks for the next mapping, through a
// mapping of the library's own of the same bytes. If the program will read the whole mapping, the
// threads also read ahead of it, several parts at a time, through the kernel's pages: the program's
// own accesses then find these pages, and each byte leaves the origin once. Some mounts (FUSE) make
// the kernel drop a file's pages at each open, so that all pages ahead of the program are read
// again. Therefore the threads stay only a little ahead in a file that is read from end to end.
//
// Use: add() for each new mapping, unmapped() when the program unmaps it; the threads call
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

  // A mapping of the program, and the library's own of the same bytes, from byte `begin` of the
  // file on.
  struct Added {
    base::Mapping own;
    std::uint64_t begin = 0;
    const void* program_has = nullptr;  // the address of the program's mapping; see unmapped()
    // How many of the bytes the kernel already had when the program made its mapping, so that it
    // did not read them for the program.
    std::uint64_t before = 0;
    bool tells_pages = false;  // LargeFile::tells_pages
  };
  // The caller has counted `own` as one of the file's own mappings, and keeps that count if add()
  // returns false, because there is no room.
  bool add(LargeFile& file, Added&& added);
  // Call after LargeFile::note_lock, before the lock is made: drops the file's mappings, unless a
  // thread is stuck in one for more than a second.
  void let_go_of(LargeFile& file);
  // Notes that the program has opened the file. On some mounts (FUSE) the kernel then drops its
  // pages, including those that no thread has copied yet.
  void opened(const LargeFile& file);
  // Notes that the program has unmapped these pages. Bytes that were read before are still copied.
  void unmapped(const void* at, std::size_t length);
  // Whether the kernel has read a twentieth of the file for mappings that the program unmapped
  // after a few reads each. The kernel may have dropped these pages, and a program that continues
  // like this will read all of the file. `begins`: the caller should have the whole file fetched.
  // `goes_on`: an earlier call has returned `begins`.
  enum class AllOver : std::uint8_t { no, begins, goes_on };
  AllOver all_over(const LargeFile& file);
  // Notes that the program has given this advice for these pages. MADV_WILLNEED: they are read now,
  // unless the kernel has read them, which it does for a short range. MADV_SEQUENTIAL: the mapping
  // is read from one end to the other. MADV_RANDOM: it is not read ahead.
  void advised(const void* at, std::size_t length, int advice);

  // Reads and copies a part of a mapping that will be read whole. False: there is none.
  bool bring_part();
  // Copies what the kernel has read, if it is time for that.
  void look();
  // The time until the next look.
  std::uint64_t pause_ns() const;

  void drop_all();
  void forget();

 private:
  // Any thread may use the atomics, even if it does not own the row.
  struct Row : ClaimedRow {
    std::atomic<bool> is_left{false};         // the program has unmapped it
    std::atomic<bool> has_lost_pages{false};  // pages may have been dropped before any look saw
                                              // them
    std::atomic<bool> may_have_part{false};   // for bring_part()
    // Counts threads that use the file and the mapping without owning the row. Both stay until the
    // last of these threads is done.
    std::atomic<std::uint32_t> users{0};
    std::atomic<bool> is_over{false};      // the mapping must be dropped; set by the owner or a
                                           // user
    std::atomic<std::uint64_t> before{0};  // bytes of Added that no look has found yet
    std::atomic<int> advice{0};            // MADV_NORMAL, SEQUENTIAL or RANDOM
    // Offsets within the mapping: the rest of what MADV_WILLNEED asked for.
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
    // The thread of the program that made the mapping, and its page faults until then.
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

  // A mapping younger than this may be one of many.
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

  // Bytes that the kernel has read for mappings that the program has left. Files share the places.
  struct ReadAllOver {
    std::atomic<std::uint64_t> version{0}, bytes{0};
    std::atomic<std::uint64_t> begun_ns{0};  // base::monotonic_ns
  };
  ReadAllOver read_all_over_[64];
  ReadAllOver& read_all_over(std::uint64_t version) {
    return read_all_over_[version % std::size(read_all_over_)];
  }

  Row rows_[k_most];
  std::atomic<std::uint32_t> reached_{0};  // no row from this one on was ever filled
  std::atomic<bool> is_looking_{false};    // a thread looks at the mappings
  std::size_t first_to_keep_ = 0;          // the row at which that thread's next look begins
  // base::monotonic_ns: the time of the next look, and the time before which mappings that the
  // program has left are dropped without a look.
  std::atomic<std::uint64_t> next_look_ns_{0}, earliest_look_ns_{0};
  std::atomic<std::uint32_t> count_{0};
  std::atomic<bool> is_narrow_{false};  // the kernel has dropped pages ahead of the program
  // base::monotonic_ns: since when a part has been waiting for the program; 0: none waits.
  std::atomic<std::uint64_t> waits_since_ns_{0};
};

}  // namespace cube::prefetch
