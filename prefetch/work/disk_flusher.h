// The thread that writes cached files to the disk if no other process of the node does. Life: call
// start() once for each FileCache, then ask_to_stop() and wait(). When wait() returns, the thread
// has written as much as the time allowed. A forked child has no such thread and must not touch the
// object again. Thread-safe, but it may be stopped only once.
#pragma once

#include "cache/file_cache.h"
#include "cache/tier/tier_writer.h"
#include "prefetch/threads/thread_crew.h"

namespace cube::prefetch {

class DiskFlusher final : public ThreadCrew {
 public:
  // Returns true if no process of the node writes to the disk, so this process must start a thread.
  // In a signal handler, the result can be false although no process writes.
  static bool is_wanted(cache::FileCache& cache);
  // Returns null if no thread can be started; the log says why.
  static DiskFlusher* start(cache::FileCache& cache);
  // Lets the thread write until this time (base::monotonic_ns) and no longer.
  void ask_to_stop(std::uint64_t until_ns);
  void wait(std::uint64_t until_ns);

 private:
  friend ThreadCrew;
  explicit DiskFlusher(cache::FileCache& cache);
  void work(unsigned) override;
  void write();
  bool has_time() const;

  cache::FetchAhead& ahead_;
  cache::TierWriter writer_;
  std::atomic<std::uint64_t> until_ns_{UINT64_MAX};  // set before the request to stop
};

}  // namespace cube::prefetch
