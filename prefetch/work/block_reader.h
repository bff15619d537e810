// The threads of this process that read large files ahead of the program
// (cache/fill/large/large_file.h). They take no signals, have a low priority and an fd table of
// their own. They read each file by a copy of the program's number, which lives for one read alone,
// and which a close of a locked file waits for: so no lock of the program's lasts longer than the
// program wants, and no page of the kernel is dropped, as FUSE does at each open. Life: start()
// once for each FileCache; stop() ends them, and leaves behind those that hang in the origin. A
// forked child has no such thread, and calls forget(). Thread safety: all of it, but stop and
// forget once. submit is lock-free and async-signal-safe.
#pragma once

#include "cache/file_cache.h"

namespace cube::prefetch {

class BlockReader {
 public:
  // A number of the program's that leads to this open file; negative: there is none. By threads of
  // the reader.
  using NumberOf = int (*)(const cache::LargeFile& file);
  // False: in a sandbox that may kill for a new thread. Later it may be known not to.
  static bool may_be_tried();
  // Null where there can be no thread; the log says why. Never freed: its threads may be left
  // behind.
  static BlockReader* start(cache::FileCache& cache, NumberOf number_of);
  // False: too much is waiting already.
  // `fd`: a number of the file, if `numbers` have not left it meanwhile, or -1. A range goes on
  // while any number leads to the file.
  bool submit(cache::LargeFile& file, int fd, cache::LargeFile::FdEpoch fd_epoch,
              const cache::LargeFile::Range& range);
  // A program maps these bytes of the file, and the kernel reads them: what it has read is copied
  // for the next time. `own` is a mapping of the same bytes. `program_has`: where the program has
  // them; see unmapped(). `before`: bytes of them that the kernel had when the program made its
  // mapping; it has not read these for it. The caller has counted it as one of the file's own
  // mappings, and does so on if there is no room for it (false).
  bool may_keep_mapped() const;
  bool keep_mapped(cache::LargeFile& file, base::Mapping&& own, std::uint64_t begin,
                   const void* program_has, std::uint64_t before);
  // A lock of the file is to be made: no mapping of it stays, unless a thread hangs in one for more
  // than a second.
  void let_go_of(cache::LargeFile& file);
  // The program has opened it. Some mounts (FUSE) have the kernel drop its pages then, also those
  // that nobody has looked at.
  void opened(const cache::LargeFile& file);
  // The program has these pages no more. Bytes that were read by then are still copied.
  void unmapped(const void* at, std::size_t length);
  void stop(unsigned patience_ms);
  void forget();

  // For a leak checker, as FileCache::former.
  BlockReader* former = nullptr;

 private:
  struct State;
  struct Waiting;
  struct Mapped;
  explicit BlockReader(State* state) : state_(state) {}
  State* state_;
};

}  // namespace cube::prefetch
