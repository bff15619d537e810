// The thread that writes cached files to the disk, if no other process of the node does. It takes
// no signals, has a low priority and an fd table of its own. Life: start() once for each FileCache;
// then ask_to_stop() and wait(), after which it has written what the time allowed. A forked child
// has no such thread and must not touch the object again. Thread safety: all of it, but stop it
// only once.
#pragma once

#include "cache/file_cache.h"

namespace cube::prefetch {

class DiskFlusher {
 public:
  // True if no process of the node writes, so this one must start a thread. In a signal handler it
  // may say no.
  static bool is_wanted(cache::FileCache& cache);
  // Null if there can be no thread; the log says why. Never freed: it may be left behind.
  static DiskFlusher* start(cache::FileCache& cache);
  // The thread may write until then (base::monotonic_ns).
  void ask_to_stop(std::uint64_t until_ns);
  void wait(std::uint64_t until_ns);

 private:
  struct State;
  explicit DiskFlusher(State* state) : state_(state) {}
  State* state_;
};

}  // namespace cube::prefetch
