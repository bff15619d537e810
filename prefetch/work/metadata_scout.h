// The threads of this process that list directories and gather the stats of their entries. They do
// so when a program asks for one path of a directory after another (cache/metadata/stat_gather.h).
// Life: call start() once for each FileCache, then stop(). A forked child has no such thread.
// Thread-safe, but stop() may be called only once. submit() is lock-free and async-signal-safe.
#pragma once

#include <climits>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/file_cache.h"
#include "cache/metadata/next_directories.h"
#include "cache/metadata/stat_gather.h"
#include "prefetch/threads/claimed_row.h"
#include "prefetch/threads/thread_crew.h"

namespace cube::prefetch {

class MetadataScout final : public ThreadCrew {
 public:
  // Returns null if no thread can be started; the log says why. The object is never freed, because
  // threads of the program might still call it.
  static MetadataScout* start(cache::FileCache& cache);
  enum class Wish : std::uint8_t {
    list,  // list the directory
    // list the directories that the program will list next, because it had to wait for this one
    next,
    gather,  // gather the entries' stats, if an entry has the requested name
    follow   // gather stats in the next directories, because the program reached this one
  };
  // Returns false if too many requests are waiting already.
  bool submit(Wish wish, std::string_view directory, std::string_view asked);

 private:
  friend ThreadCrew;
  // A directory that waits for a thread. While the row is claimed, a thread works on the directory.
  struct Place : ClaimedRow {
    std::atomic<std::uint64_t> hash{0};  // hash of the path and the wish, unless the row is free
    Wish wish = Wish::list;
    std::size_t length = 0, name_length = 0;
    char path[PATH_MAX], name[NAME_MAX];
  };
  using Gather = std::shared_ptr<cache::StatGather>;

  explicit MetadataScout(cache::FileCache& cache);
  void work(unsigned) override;
  Gather gather_under_way();
  void work_on(const Gather& gather);
  Gather begin(const std::string& directory, std::string_view asked);
  void follow(const std::string& directory);
  void list_next(const std::string& directory);
  template <typename Wanted>
  std::vector<std::string> after(const std::string& directory, Wanted&& order_of);
  bool help();
  bool add(Gather gather);
  void remove(const cache::StatGather* gather);

  cache::FileCache& cache_;
  Place wishes_[32];
  base::Mutex mutex_;  // used only by the threads; guards the next three members
  cache::NextDirectories next_;
  std::vector<cache::NextDirectories> next_lists_;
  Gather gathers_[4];
};

}  // namespace cube::prefetch
