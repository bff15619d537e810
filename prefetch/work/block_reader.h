// The threads of this process that read large files ahead of the program
// (cache/fill/large/large_file.h) and that follow the program's mappings of large files
// (mapped_files.h). They read each file through a copy of the program's fd. The copy exists only
// for one read, and a close of a locked file waits for that read. So the program's locks are
// released when the program closes the file. Copying an fd also avoids an open, at which FUSE drops
// the file's pages. The threads open the file themselves only for submit_all(). Life: call start()
// once for each FileCache, then stop(). A forked child has no such thread and calls forget().
// Thread-safe, but stop() and forget() may be called only once. submit() is lock-free and
// async-signal-safe.
#pragma once

#include "cache/file_cache.h"
#include "prefetch/threads/claimed_row.h"
#include "prefetch/threads/host_fds.h"
#include "prefetch/threads/thread_crew.h"
#include "prefetch/work/mapped_files.h"
#include "prefetch/work/own_open.h"

namespace cube::prefetch {

class BlockReader final : public ThreadCrew {
 public:
  using LargeFile = cache::LargeFile;
  // Returns an fd of the program for this open file, or a negative number if there is none. Called
  // on the reader's threads.
  using FdOf = int (*)(const LargeFile& file);
  // Returns false in a sandbox that might kill the process for a new thread. When a trial has shown
  // that the sandbox does not, returns true.
  static bool may_be_tried();
  // Returns null if no thread can be started; the log says why. The object is never freed, because
  // threads of the program might still call it.
  static BlockReader* start(cache::FileCache& cache, FdOf fd_of);
  // Returns false if too many ranges are waiting already. `fd` is an fd of the file, or -1. It is
  // used only if no fd of the file was closed since the caller read `fds_left`. The range is read
  // only while some fd refers to the file.
  bool submit(LargeFile& file, int fd, LargeFile::FdsLeft fds_left, const LargeFile::Range& range) {
    return put(file, fd, fds_left, range, /*outlives_fds=*/false);
  }
  // Like submit(), for a whole file that the program maps again and again for a few reads each
  // time. The file is read to its end. If no fd refers to the file any longer, the threads open it
  // themselves.
  bool submit_all(LargeFile& file) {
    file.expect_drops();
    return put(file, -1, file.fds_left(), {0, file.size(), /*passes=*/false},
               /*outlives_fds=*/true);
  }
  // False in a sandbox, where mappings are not followed.
  bool may_follow_mappings() const { return !is_sandboxed_; }
  MappedFiles& mapped() { return mapped_; }
  void stop(unsigned patience_ms);
  void forget();

 private:
  friend ThreadCrew;
  // A range that waits for a thread.
  struct Waiting : ClaimedRow {
    LargeFile* file = nullptr;
    int fd = -1;
    LargeFile::FdsLeft fds_left = 0;
    LargeFile::Range rest;
    bool outlives_fds = false;
  };

  BlockReader(cache::FileCache& cache, FdOf fd_of, bool is_sandboxed);
  void work(unsigned) override;
  bool put(LargeFile& file, int fd, LargeFile::FdsLeft fds_left, const LargeFile::Range& range,
           bool outlives_fds);
  bool take_turn(const HostFds* own, OwnOpen& opened);
  void open_from_now_on(const char* call, int error);
  base::UniqueFd copy_of(const HostFds& own, const LargeFile& file, int fd,
                         LargeFile::FdsLeft fds_left);
  base::UniqueFd copy_for(const HostFds& own, Waiting& range);
  int opened_for(LargeFile& file, OwnOpen& opened, LargeFile::FdsLeft& fds_left, bool outlives_fds);
  void fetch(LargeFile& file, int fd, LargeFile::FdsLeft fds_left, const LargeFile::Range& range,
             bool outlives_fds);

  cache::FileCache& cache_;
  const FdOf fd_of_;
  // The process is in a sandbox, which might kill it for a call that the program's own reads do not
  // make.
  const bool is_sandboxed_;
  std::atomic<bool> opens_by_itself_;  // copies of the program's fds are refused
  Waiting waiting_[64];
  MappedFiles mapped_;
};

}  // namespace cube::prefetch
