// The thread that prefetches for the whole node while this process leads. Otherwise it waits until
// the leader ends, or is stopped (lead_claim.h). Meanwhile it gives back memory that others need
// (room_for_others.h), and if there is nothing to prefetch, it does only that. If the process loses
// the lead, it waits again.
//
// If there is a disk, another thread fills it (disk_flusher.h), even if there is nothing to
// prefetch.
//
// Life: start() once for each FileCache; stop() ends the thread within some tens of milliseconds,
// even if the origin hangs, and leaves the lead to another process. A forked child has no such
// thread and must not touch the object again. Thread-safe, but stop() only once.
#pragma once

#include "cache/base/settings/config.h"
#include "cache/file_cache.h"
#include "cache/report/progress.h"
#include "prefetch/work/disk_flusher.h"

namespace cube::prefetch {

class Sidecar {
 public:
  // Null if no thread can be started; the log says why. Never freed. The thread writes the lines of
  // `progress` to the terminal; null: it writes none.
  static Sidecar* start(cache::FileCache& cache, const base::Config& config,
                        cache::Progress* progress = nullptr);
  // Takes up to 50 ms more if there is a disk.
  void stop(unsigned patience_ms = 15);

 private:
  class Leader;
  Sidecar(Leader* leader, DiskFlusher* flusher) : leader_(leader), flusher_(flusher) {}
  Leader* const leader_;        // null: nothing is prefetched
  DiskFlusher* const flusher_;  // null: there is no disk
};

}  // namespace cube::prefetch
