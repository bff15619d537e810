// Fetches large files, or parts of them, that a list, an announcement or a command names: block
// after block, several at the same time, in the order in which they were named. Threads of the
// fetcher open the files. They start with the first fetch.
//
// Each submitted fetch ends once: by the client's large_ended(), on a thread of the fetcher or in
// stop(). If a thread still hangs at the origin when the patience of stop() is over, it is left
// behind and makes no more callbacks. After stop() has returned, no function of the client runs.
// Thread-safe, but stop() only once, and before let_go(). A client must not call stop() from within
// a callback.
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
    busy,       // being written, or another process fetches a part of it and hangs
    failed,     // `error` comes from the kernel
    stopped
  } ending = Ending::stopped;
  int error = 0;
  // The number of bytes that were wanted, and of those that could not be fetched.
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
  // `asks_for_blocks`: each thread requests a whole block in one step, unless the depth is below
  // k_threads. So no program should open the files meanwhile: on some mounts (FUSE), an open makes
  // the kernel drop all pages that have been requested but not yet copied.
  static CrewPtr<LargeFetcher> make(cache::FileCache& cache, LargeClient& client, int nice,
                                    bool asks_for_blocks) {
    return CrewPtr<LargeFetcher>(new LargeFetcher(cache, client, nice, asks_for_blocks));
  }

  // False: no thread can be started, or the fetcher is stopped; `fetch` is unchanged.
  bool submit(std::unique_ptr<LargeFetch>& fetch);
  // How many blocks are fetched at the same time.
  void set_depth(unsigned depth);
  unsigned in_flight() const { return running_.load(std::memory_order_relaxed); }
  // How many files under way have a known size.
  unsigned measured() const { return measured_.load(std::memory_order_relaxed); }
  // Total bytes fetched; and the bytes of the files under way that are still to come.
  std::uint64_t fetched_bytes() const { return fetched_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_to_come() const { return to_come_.load(std::memory_order_relaxed); }
  // Begins no further block.
  void begin_stop();
  void stop(unsigned patience_ms);

 private:
  using LargeFile = cache::LargeFile;
  using Lock = base::Condition::Lock;
  // One fetch. The mutex guards all fields except those that its users read: the file, and the
  // fields that are fixed once it is open.
  struct Row {
    explicit Row(std::unique_ptr<LargeFetch> of) : path(of->file.path), fetch(std::move(of)) {}

    enum class Step : std::uint8_t { named, opening, open } step = Step::named;
    const std::string path;
    std::unique_ptr<LargeFetch> fetch;  // null: stop() has ended it
    // In the threads' own fd table, so no other thread ever closes it.
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
  // The caller has the lock, and is in the gate.
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
  std::list<std::unique_ptr<Row>> rows_;  // each reader's fetches are in its order
  unsigned depth_ = k_threads;
  bool is_started_ = false, cannot_run_ = false;
};

}  // namespace cube::prefetch
