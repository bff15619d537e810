// The thread beside the program that writes cached files to the disk, while no other process of the
// node does. It takes no signals, has a low priority and an fd table of its own. Life: start() once
// for each FileCache; ask_to_stop(), then wait(), after which it has written what the time allowed.
// A forked child has no such thread and must not touch the object again. Thread safety: all of it,
// but the stop once.
#pragma once

#include "cache/file_cache.h"

namespace cube::prefetch {

class DiskFlusher {
 public:
  // Does no process of the node write, so that this one is to start? In a signal handler it may say
  // no.
  static bool is_wanted(cache::FileCache& cache);
  // Null where there can be no thread; the log says why. Never freed: it may be left behind.
  static DiskFlusher* start(cache::FileCache& cache);
  // It may go on writing until then (base::monotonic_ns).
  void ask_to_stop(std::uint64_t until_ns);
  void wait(std::uint64_t until_ns);

 private:
  struct State;
  explicit DiskFlusher(State* state) : state_(state) {}
  State* state_;
};

}  // namespace cube::prefetch
