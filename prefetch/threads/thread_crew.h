// A crew is a group of library threads that do one kind of work beside the program. A derived class
// defines the work. ThreadCrew starts the threads (background_thread.h), gives them an fd table
// that the host can neither see nor close, lowers their priority, tells them to stop, and waits for
// their end.
//
// Life: if a thread hangs at the origin, stop() leaves it behind. Therefore the crew deletes itself
// only when let_go() has been called (by CrewPtr) and its last thread has ended. If other threads
// might still call the crew, its owner never calls let_go(). A forked child has none of the
// threads, and must not stop the crew. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "prefetch/threads/event_count.h"

namespace cube::prefetch {

class ThreadCrew {
 public:
  ThreadCrew(const ThreadCrew&) = delete;
  ThreadCrew& operator=(const ThreadCrew&) = delete;

  void begin_stop() {
    is_stopping_.store(true, std::memory_order_seq_cst);
    news_.notify();
  }
  bool is_stopping() const { return is_stopping_.load(std::memory_order_acquire); }
  // Returns false if a thread has not ended by then.
  bool wait_for_end(std::uint64_t at_most_ns) {
    return changed_.wait_until([this] { return threads_.load(std::memory_order_acquire) == 0; },
                               at_most_ns);
  }
  bool stop(unsigned patience_ms) {
    begin_stop();
    return wait_for_end(patience_ms * base::k_ns_per_ms);
  }
  void let_go();

 protected:
  struct Kind {
    // The beginning of the log line that says why there is no thread, such as "nothing is
    // prefetched"; null if the owner logs the reason.
    const char* without = nullptr;
    std::size_t stack = 128 << 10;
    int nice = 0;
    // If true, the first thread creates an fd table and starts the other threads, which share it.
    bool shares_table = false;
    base::LogLevel level = base::LogLevel::info;
  };
  explicit ThreadCrew(const Kind& kind) : kind_(kind) {}
  virtual ~ThreadCrew() = default;

  // Runs in each thread of the crew. They are numbered from 0, in the order in which they begin.
  virtual void work(unsigned number) = 0;
  // Runs instead of work() in a thread that still has the host's fd table, because the kernel or a
  // sandbox refused a new table. It must open nothing.
  virtual void work_without_table(int error) { tell("close_range(CLOSE_RANGE_UNSHARE)", error); }

  // Returns null if no thread can be started; the log says why.
  template <typename Crew, typename... Arguments>
  static Crew* start(unsigned threads, Arguments&&... arguments) {
    try {
      auto* const crew = new Crew(std::forward<Arguments>(arguments)...);
      if (crew->start_threads(threads)) return crew;
      crew->let_go();
    } catch (...) {
      // An exception here can only mean a lack of memory.
    }
    return nullptr;
  }
  // Returns true if at least one thread was started. If fewer than `most` were, the log says why.
  bool start_threads(unsigned most);
  // Returns 0 or an errno. `may_change`: see start_background_thread().
  int start_thread(bool may_change);
  // Waits until the started threads have left the host's fd table. Returns 0, or the errno of a
  // thread that could not leave it.
  int wait_for_tables(std::uint64_t at_most_ns = UINT64_MAX);
  // Logs that there can be no thread. Only the first call logs, because further threads meet the
  // same error.
  void tell(const char* call, int error);

  EventCount news_;  // tells the threads that there is work, or that they must end
  std::atomic<bool> is_stopping_{false};

 private:
  static void run(void* crew);

  const Kind kind_;
  std::atomic<unsigned> users_{1};  // the threads and the owner
  std::atomic<unsigned> threads_{0}, begun_{0};
  // The number of threads that still have the host's fd table, and the error of a thread that must
  // keep it.
  std::atomic<unsigned> with_hosts_table_{0};
  std::atomic<int> table_error_{0};
  std::atomic<bool> is_told_{false};
  EventCount changed_;  // counts changes of threads_ and with_hosts_table_
};

struct LetGo {
  void operator()(ThreadCrew* crew) const { crew->let_go(); }
};
template <typename Crew>
using CrewPtr = std::unique_ptr<Crew, LetGo>;

}  // namespace cube::prefetch
