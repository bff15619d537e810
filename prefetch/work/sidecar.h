// The thread that prefetches for the whole node while this process leads. Otherwise it waits until
// the leader ends, or is stopped (lead_claim.h). Meanwhile it gives back memory that others need
// (room_for_others.h); if nothing is to be prefetched, it does nothing else. If the process loses
// the lead, it waits again. The thread takes no signals, has a low priority and an fd table of its
// own.
//
// If there is a disk, another thread fills it (disk_flusher.h), even if nothing is to be
// prefetched.
//
// Life: start() once for each FileCache; stop() ends the thread within some tens of milliseconds,
// whatever hangs, and leaves the lead to another process. A forked child has no such thread and
// must not touch the object again. Thread safety: all of it, but stop() only once.
#pragma once

#include "cache/base/settings/config.h"
#include "cache/file_cache.h"
#include "prefetch/work/disk_flusher.h"

namespace cube::prefetch {

class Sidecar {
 public:
  // Null if there can be no thread; the log says why. Never freed: it may be abandoned.
  static Sidecar* start(cache::FileCache& cache, const base::Config& config);
  // Takes up to 50 ms more if there is a disk.
  void stop(unsigned patience_ms = 15);

  // For a leak checker, like FileCache::former.
  Sidecar* former = nullptr;

 private:
  struct State;
  explicit Sidecar(State* state, DiskFlusher* flusher) : state_(state), flusher_(flusher) {}
  static State* start_prefetching(cache::FileCache& cache, const base::Config& config);
  void stop_prefetching(unsigned patience_ms);
  State* state_;          // null: nothing is prefetched
  DiskFlusher* flusher_;  // null: there is no disk
};

}  // namespace cube::prefetch
