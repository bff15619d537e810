// Fetches large files, or parts of them, that a list, an announcement or a command names: block
// after block, some at the same time, in the order in which they were named. Each file is opened by
// a thread of the fetcher, in an fd table of their own.
//
// A fetch that was submitted ends once: by large_ended() of the client, on a thread of the fetcher
// or in stop(). A thread that hangs at the origin when stop() loses patience is left behind, and
// calls nobody any more. After stop() no function of the client runs. Threads begin with the first
// fetch. Thread safety: all of it; stop() once. A client must not call stop() from within.
#pragma once

#include <atomic>
#include <memory>

#include "cache/file_cache.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

struct LargeFetch {
  PlannedFile file;

  enum class Ending : std::uint8_t {
    whole,
    no_room,
    small,  // it is not large: nothing was fetched
    not_a_file,
    bad_range,  // it begins behind the end of the file
    busy,       // it is being written, or another process fetches a part of it and hangs
    failed,     // `error` is the kernel's
    stopped
  } ending = Ending::stopped;
  int error = 0;
  std::uint64_t bytes = 0,
                missing = 0;  // those that were wanted, and those of them that are not there
  std::uint64_t fetched = 0;
};

class LargeClient {
 public:
  virtual void large_ended(std::unique_ptr<LargeFetch> fetch) = 0;

 protected:
  ~LargeClient() = default;
};

class LargeFetcher {
 public:
  static constexpr unsigned k_threads = 8;
  LargeFetcher(cache::FileCache& cache, LargeClient& client, int nice);
  // stop() comes first.
  ~LargeFetcher();
  LargeFetcher(const LargeFetcher&) = delete;
  LargeFetcher& operator=(const LargeFetcher&) = delete;

  // False: there can be no thread, or it is stopped; `fetch` is as it was.
  bool submit(std::unique_ptr<LargeFetch>& fetch);
  // Blocks at the same time.
  void set_depth(unsigned depth);
  unsigned in_flight() const;
  // Files under way whose size is known.
  unsigned measured() const;
  // So far; and those of the files under way that are still to come.
  std::uint64_t fetched_bytes() const;
  std::uint64_t bytes_to_come() const;
  // No further block is begun.
  void begin_stop();
  void stop(unsigned patience_ms);

 private:
  struct Row;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace cube::prefetch
