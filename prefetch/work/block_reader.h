// The threads of this process that read large files ahead of the program
// (cache/fill/large/large_file.h). They read each file through a copy of the program's fd, which
// lives for one read only; a close of a locked file waits for the copy. So no lock of the program
// lasts longer than the program wants, and the kernel drops no pages, as FUSE makes it do at each
// open. Life: start() once for each FileCache, then stop(). A forked child has no such thread and
// calls forget(). Thread safety: all of it, but stop() and forget() only once. submit() is
// lock-free and async-signal-safe.
#pragma once

#include "cache/file_cache.h"
#include "prefetch/threads/claimed_row.h"
#include "prefetch/threads/host_fds.h"
#include "prefetch/threads/thread_crew.h"
#include "prefetch/work/own_open.h"

namespace cube::prefetch {

class BlockReader final : public ThreadCrew {
 public:
  using LargeFile = cache::LargeFile;
  // Returns an fd of the program for this open file; negative: there is none. Called on the
  // reader's threads.
  using FdOf = int (*)(const LargeFile& file);
  // False in a sandbox that may kill for a new thread, until a trial has shown that it does not.
  static bool may_be_tried();
  // Null if there can be no thread; the log says why. Never freed: threads of the program may still
  // be calling it.
  static BlockReader* start(cache::FileCache& cache, FdOf fd_of);
  // Returns false if too many ranges are waiting already. `fd`: an fd of the file, or -1; valid
  // only if no fd has left the file since `fd_epoch`. The range is read as long as any fd leads to
  // the file.
  bool submit(LargeFile& file, int fd, LargeFile::FdEpoch fd_epoch, const LargeFile::Range& range);
  // A program maps these bytes of the file, and the kernel reads them: the bytes that it has read
  // are copied for the next time. `own` is a mapping of the same bytes. `program_has`: the address
  // of the program's mapping; see unmapped(). `before`: how many of the bytes the kernel had when
  // the program made its mapping; it has not read these for the program. The caller has counted
  // `own` as one of the file's own mappings, and keeps that count if there is no room for it
  // (false).
  bool may_keep_mapped() const { return !is_sandboxed_; }
  bool keep_mapped(LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                   const void* program_has, std::uint64_t before);
  // Call before a lock of the file is made: drops its mappings, unless a thread hangs in one for
  // more than a second.
  void let_go_of(LargeFile& file);
  // The program has opened the file. Some mounts (FUSE) make the kernel drop its pages then,
  // including those that no thread has copied yet.
  void opened(const LargeFile& file);
  // The program has unmapped these pages. Bytes that were read by then are still copied.
  void unmapped(const void* at, std::size_t length);
  void stop(unsigned patience_ms);
  void forget();

 private:
  friend ThreadCrew;
  // A range that waits for a thread.
  struct Waiting : ClaimedRow {
    LargeFile* file = nullptr;
    int fd = -1;
    LargeFile::FdEpoch fd_epoch = 0;
    LargeFile::Range rest;
  };
  // Bytes of a file that a program maps. Any thread may set the atomics, also
  // one that does not own the row.
  struct Mapped : ClaimedRow {
    std::atomic<bool> is_left{false};         // the program has unmapped it
    std::atomic<bool> has_lost_pages{false};  // pages that no look has seen may be gone
    LargeFile* file = nullptr;
    base::Mapping own;
    std::uint64_t begin = 0;
    std::uint64_t before = 0;  // bytes that the kernel had at that time and no look has found yet
    // The addresses at which the program has mapped them.
    std::atomic<std::uintptr_t> from{0}, to{0};
  };

  BlockReader(cache::FileCache& cache, FdOf fd_of, bool is_sandboxed);
  void work(unsigned) override;
  bool take_turn(const HostFds* own, OwnOpen& opened);
  void open_from_now_on(const char* call, int error);
  void look_at_mapped();
  std::uint64_t keep(Mapped& row, int region_fd);
  void drop(Mapped& row);
  void drop_left(Mapped& row);
  void give_back(Mapped& row);
  void drop_mappings_of(const LargeFile& file);
  std::uint64_t pause_ns() const;
  base::UniqueFd copy_of(const HostFds& own, const LargeFile& file, int fd,
                         LargeFile::FdEpoch fd_epoch);
  base::UniqueFd copy_for(const HostFds& own, Waiting& range);
  int opened_for(LargeFile& file, OwnOpen& opened, LargeFile::FdEpoch& fd_epoch);
  void fetch(LargeFile& file, int fd, LargeFile::FdEpoch fd_epoch, const LargeFile::Range& range);

  cache::FileCache& cache_;
  const FdOf fd_of_;
  // A sandbox may kill for a call that the program's own reads do not make.
  const bool is_sandboxed_;
  std::atomic<bool> opens_by_itself_;  // copies of the program's fds are refused
  Waiting waiting_[64];
  Mapped mapped_[64];
  std::atomic<bool> is_keeping_{false};  // a thread looks at the mappings
  std::size_t first_to_keep_ = 0;        // for that thread: the row at which the next look begins
  // base::monotonic_ns: the time of the next look, and the time before which mappings that the
  // program has left are dropped without a look.
  std::atomic<std::uint64_t> next_keep_ns_{0}, earliest_keep_ns_{0};
  std::atomic<std::uint32_t> mappings_{0};
};

}  // namespace cube::prefetch
