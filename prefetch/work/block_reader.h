// The threads of this process that read large files ahead of the program
// (cache/fill/large/large_file.h). They take no signals, have a low priority and an fd table of
// their own. They read each file through a copy of the program's fd, which lives for one read only;
// a close of a locked file waits for the copy. So no lock of the program lasts longer than the
// program wants, and the kernel drops no pages, as FUSE makes it do at each open. Life: start()
// once for each FileCache; stop() ends the threads and leaves behind those that hang in the origin.
// A forked child has no such thread and calls forget(). Thread safety: all of it, but stop() and
// forget() only once. submit() is lock-free and async-signal-safe.
#pragma once

#include "cache/file_cache.h"

namespace cube::prefetch {

class BlockReader {
 public:
  // Returns an fd of the program for this open file; negative: there is none. Called on the
  // reader's threads.
  using FdOf = int (*)(const cache::LargeFile& file);
  // False in a sandbox that may kill for a new thread. May become true once that is known not to
  // happen.
  static bool may_be_tried();
  // Null if there can be no thread; the log says why. Never freed: its threads may be left behind.
  static BlockReader* start(cache::FileCache& cache, FdOf fd_of);
  // Returns false if too many ranges are waiting already. `fd`: an fd of the file, or -1; valid
  // only if no fd has left the file since `fd_epoch`. The range is read as long as any fd leads to
  // the file.
  bool submit(cache::LargeFile& file, int fd, cache::LargeFile::FdEpoch fd_epoch,
              const cache::LargeFile::Range& range);
  // A program maps these bytes of the file, and the kernel reads them: the bytes that it has read
  // are copied for the next time. `own` is a mapping of the same bytes. `program_has`: the address
  // of the program's mapping; see unmapped(). `before`: how many of the bytes the kernel had when
  // the program made its mapping; it has not read these for the program. The caller has counted
  // `own` as one of the file's own mappings, and keeps that count if there is no room for it
  // (false).
  bool may_keep_mapped() const;
  bool keep_mapped(cache::LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                   const void* program_has, std::uint64_t before);
  // Call before a lock of the file is made: drops its mappings, unless a thread hangs in one for
  // more than a second.
  void let_go_of(cache::LargeFile& file);
  // The program has opened the file. Some mounts (FUSE) make the kernel drop its pages then,
  // including those that no thread has copied yet.
  void opened(const cache::LargeFile& file);
  // The program has unmapped these pages. Bytes that were read by then are still copied.
  void unmapped(const void* at, std::size_t length);
  void stop(unsigned patience_ms);
  void forget();

  // For a leak checker, like FileCache::former.
  BlockReader* former = nullptr;

 private:
  struct State;
  struct Waiting;
  struct Mapped;
  explicit BlockReader(State* state) : state_(state) {}
  State* state_;
};

}  // namespace cube::prefetch
