// The thread beside the program that prefetches for the whole node, while this process leads; until
// then it waits for the leader's end, or for a leader that is stopped (lead_claim.h). Meanwhile it
// gives memory back that others need (room_for_others.h); where nothing is to be prefetched, it
// does nothing else. A process that loses the lead waits again. The thread takes no signals, has a
// low priority and an fd table of its own.
//
// If there is a disk, another thread fills it (disk_flusher.h), even if nothing is to be
// prefetched.
//
// Life: start() once for each FileCache; stop() ends it within some tens of milliseconds, whatever
// hangs, and leaves the lead to another process. A forked child has no such thread and must not
// touch the object again. Thread safety: all of it, but stop once.
#pragma once

#include "cache/base/settings/config.h"
#include "cache/file_cache.h"
#include "prefetch/work/disk_flusher.h"

namespace cube::prefetch {

class Sidecar {
 public:
  // Null where there can be no thread; the log says why. Never freed: it may be abandoned.
  static Sidecar* start(cache::FileCache& cache, const base::Config& config);
  // With a disk, within 50 ms more.
  void stop(unsigned patience_ms = 15);

  // For a leak checker, as FileCache::former.
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
