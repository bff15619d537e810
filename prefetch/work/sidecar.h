// The thread that prefetches for the whole node while this process leads. While another process
// leads, the thread waits until that process ends or is stopped (lead_claim.h). If this process
// loses the lead, the thread waits again. In both states it gives back memory that others need
// (room_for_others.h). If there is nothing to prefetch, it does only that.
//
// If there is a disk, a second thread fills it (disk_flusher.h), even if there is nothing to
// prefetch.
//
// Life: call start() once for each FileCache. stop() ends the thread within some tens of
// milliseconds, even if the origin hangs, and leaves the lead to another process. A forked child
// has no such thread and must not touch the object again. Thread-safe, but stop() may be called
// only once.
#pragma once

#include "cache/base/settings/config.h"
#include "cache/file_cache.h"
#include "cache/report/progress.h"
#include "prefetch/work/disk_flusher.h"

namespace cube::prefetch {

class Sidecar {
 public:
  // Returns null if no thread can be started; the log says why. The object is never freed. The
  // thread writes the lines of `progress` to the terminal, if `progress` is not null.
  static Sidecar* start(cache::FileCache& cache, const base::Config& config,
                        cache::Progress* progress = nullptr);
  // Takes up to 50 ms longer if there is a disk.
  void stop(unsigned patience_ms = 15);

 private:
  class Leader;
  Sidecar(Leader* leader, DiskFlusher* flusher) : leader_(leader), flusher_(flusher) {}
  Leader* const leader_;        // null: nothing is prefetched
  DiskFlusher* const flusher_;  // null: there is no disk
};

}  // namespace cube::prefetch
