// Fetches large files, or parts of them, that a list, an announcement or a command names: block
// after block, several at the same time, in the order in which they were named. Threads of the
// fetcher open the files, in an fd table of their own. The threads start with the first fetch.
//
// Each submitted fetch ends once: by the client's large_ended(), on a thread of the fetcher or in
// stop(). A thread that hangs at the origin when stop() loses patience is left behind and calls
// nobody any more. After stop() has returned, no function of the client runs. Thread safety: all of
// it, but stop() only once. A client must not call stop() from within a callback.
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
    small,  // the file is not large: nothing was fetched
    not_a_file,
    bad_range,  // the range begins behind the end of the file
    busy,       // being written, or another process fetches a part of it and hangs
    failed,     // `error` comes from the kernel
    stopped
  } ending = Ending::stopped;
  int error = 0;
  // How many bytes were wanted, and how many of these are not there.
  std::uint64_t bytes = 0, missing = 0;
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
  // Call stop() first.
  ~LargeFetcher();
  LargeFetcher(const LargeFetcher&) = delete;
  LargeFetcher& operator=(const LargeFetcher&) = delete;

  // False: there can be no thread, or the fetcher is stopped; `fetch` is unchanged.
  bool submit(std::unique_ptr<LargeFetch>& fetch);
  // How many blocks are fetched at the same time.
  void set_depth(unsigned depth);
  unsigned in_flight() const;
  // How many files under way have a known size.
  unsigned measured() const;
  // Total bytes fetched; and the bytes of the files under way that are still to come.
  std::uint64_t fetched_bytes() const;
  std::uint64_t bytes_to_come() const;
  // No further block begins.
  void begin_stop();
  void stop(unsigned patience_ms);

 private:
  struct Row;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace cube::prefetch
