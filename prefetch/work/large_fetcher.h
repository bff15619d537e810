// Fetches large files, or parts of them, that a list, an announcement or a command names. It
// fetches them block by block, in the order in which they were named, with several blocks in
// flight. Threads of the fetcher open the files; these threads start with the first fetch.
//
// Each submitted fetch ends exactly once, with a call of the client's large_ended(), on a thread of
// the fetcher or in stop(). A thread that still hangs at the origin when the patience of stop() is
// over is left behind and makes no more callbacks. After stop() has returned, no function of the
// client runs. Thread-safe, but stop() may be called only once, and before let_go(). A client must
// not call stop() from within a callback.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <string>

#include "cache/base/condition.h"
#include "cache/file_cache.h"
#include "prefetch/order/path_source.h"
#include "prefetch/threads/callback_gate.h"
#include "prefetch/threads/thread_crew.h"

namespace cube::prefetch {

struct LargeFetch {
  PlannedFile file;

  enum class Ending : std::uint8_t {
    whole,
    no_room,
    small,  // the file is not large: nothing was fetched
    not_a_file,
    bad_range,  // the range begins past the end of the file
    busy,       // the file is being written, or another process hangs while it fetches a part
    failed,     // `error` comes from the kernel
    stopped
  } ending = Ending::stopped;
  int error = 0;
  // The number of bytes wanted, and how many of these could not be fetched.
  std::uint64_t bytes = 0, missing = 0;
  std::uint64_t fetched = 0;
};

class LargeClient {
 public:
  virtual void large_ended(std::unique_ptr<LargeFetch> fetch) = 0;

 protected:
  ~LargeClient() = default;
};

class LargeFetcher final : public ThreadCrew {
 public:
  static constexpr unsigned k_threads = 8;
  // `asks_for_blocks`: each thread requests a whole block in one step if the depth is at least
  // k_threads. In this mode no program should open the files during the fetch: on some mounts
  // (FUSE), an open makes the kernel drop all pages that have been requested but not yet copied.
  static CrewPtr<LargeFetcher> make(cache::FileCache& cache, LargeClient& client, int nice,
                                    bool asks_for_blocks) {
    return CrewPtr<LargeFetcher>(new LargeFetcher(cache, client, nice, asks_for_blocks));
  }

  // Returns false, and leaves `fetch` unchanged, if no thread can be started or the fetcher is
  // stopped.
  bool submit(std::unique_ptr<LargeFetch>& fetch);
  // How many blocks are fetched at the same time.
  void set_depth(unsigned depth);
  unsigned in_flight() const { return running_.load(std::memory_order_relaxed); }
  // How many files under way have a known size.
  unsigned measured() const { return measured_.load(std::memory_order_relaxed); }
  // All bytes fetched so far, and the missing bytes of the files under way.
  std::uint64_t fetched_bytes() const { return fetched_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_to_come() const { return to_come_.load(std::memory_order_relaxed); }
  // From now on, no further block is begun.
  void begin_stop();
  void stop(unsigned patience_ms);

 private:
  using LargeFile = cache::LargeFile;
  using Lock = base::Condition::Lock;
  // One fetch. The mutex guards all fields except `file` and the fields that stay constant after
  // the file is open; users of the row read those without the mutex.
  struct Row {
    explicit Row(std::unique_ptr<LargeFetch> of) : path(of->file.path), fetch(std::move(of)) {}

    enum class Step : std::uint8_t { named, opening, open } step = Step::named;
    const std::string path;
    std::unique_ptr<LargeFetch> fetch;  // null after stop() has ended it
    // An fd of the threads' own table, so no other thread ever closes it.
    int fd = -1;
    std::uint64_t opened_ns = 0;
    LargeFile* file = nullptr;
    LargeFile::Range all, rest;
    std::uint64_t to_come = 0;
    unsigned users = 0;
    int passes = 0;
    bool is_missing_some = false, is_measured = false;
    LargeFetch::Ending ending = LargeFetch::Ending::whole;
    int error = 0;
  };

  LargeFetcher(cache::FileCache& cache, LargeClient& client, int nice, bool asks_for_blocks);
  void work(unsigned number) override;
  void work_without_table(int error) override;
  void keep_at_it(CallbackGate& gate);
  Row* next_row();
  void open(Lock& lock, Row& row);
  bool share_open_file(Row& row);
  void fetch_block(Lock& lock, Row& row);
  void look_whether_over(Lock& lock, Row& row, CallbackGate& gate);
  // The caller holds the lock and is inside the gate.
  void end(Lock& lock, std::unique_ptr<Row> row, CallbackGate& gate);
  void note_left(Row& row, std::uint64_t left);
  void forget(Row& row);

  cache::FileCache& cache_;
  LargeClient& client_;
  const bool asks_for_blocks_;
  std::atomic<std::uint64_t> fetched_{0}, to_come_{0};
  std::atomic<unsigned> running_{0}, measured_{0};
  CallbackGate gates_[k_threads];

  base::Mutex mutex_;  // guards the rest
  base::Condition work_;
  std::list<std::unique_ptr<Row>> rows_;  // fetches of one reader are in its order
  unsigned depth_ = k_threads;
  bool is_started_ = false, cannot_run_ = false;
};

}  // namespace cube::prefetch
