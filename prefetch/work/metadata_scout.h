// The threads of this process that list directories and gather the stats of their entries, once a
// program asks for one path after the other (cache/metadata/stat_gather.h). They take no signals,
// have a low priority and an fd table of their own. Life: start() once for each FileCache; stop()
// ends the threads and leaves behind those that hang in the origin. A forked child has no such
// thread. Thread safety: all of it, but stop() only once. submit() is lock-free and
// async-signal-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/file_cache.h"

namespace cube::prefetch {

class MetadataScout {
 public:
  // Null if there can be no thread; the log says why. Never freed: its threads may be left behind.
  static MetadataScout* start(cache::FileCache& cache);
  enum class Wish : std::uint8_t {
    list,  // list the directory
    // list the directories that the program will list next, because it had to wait for this one
    next,
    gather,  // gather the stats of its entries, if it has the name that was asked for
    follow  // gather those of the directories that follow, because the program has come to this one
  };
  // False: too many wishes are waiting already.
  bool submit(Wish wish, std::string_view directory, std::string_view asked);
  void stop(unsigned patience_ms);

  // For a leak checker, like FileCache::former.
  MetadataScout* former = nullptr;

 private:
  struct State;
  struct Place;
  class PlaceEnd;
  explicit MetadataScout(State* state) : state_(state) {}
  State* state_;
};

}  // namespace cube::prefetch
