// The fetch that a thread is performing. During a fetch, a signal handler of the same thread that
// opens files neither waits nor fetches. A handler may also leave by siglongjmp, which destroys
// nothing on the stack. The thread's next open then finds that no handler is running, and ends what
// was left behind: the flight, the fd and the count of waiting programs. Invariants: an object
// lives on the stack of one open; the thread has a pointer to the newest object. After a jump, the
// fetch's room in a segment is lost. Thread safety: each thread has its own. Async-signal-safe.
#pragma once

#include "cache/region/region.h"
#include "cache/region/single_flight.h"

namespace cube::cache {

class FetchScope {
 public:
  FetchScope();
  ~FetchScope();
  FetchScope(const FetchScope&) = delete;
  FetchScope& operator=(const FetchScope&) = delete;

  // True if this thread is inside a fetch.
  static bool is_open();
  // For a forked child: the parent owns what the scope holds.
  static void forget();

  // False: another open took this scope for abandoned and ended it (the handler has continued on
  // another stack). The caller must not publish anything then.
  bool is_own() const;
  // Registers the flight, which ends if this scope is left behind.
  void hold(const SingleFlight::Hold& flight);
  // The program waits for the origin between these two calls. They tell the prefetcher that it
  // waits and, afterwards, for how long it has waited.
  void begin_wait(ProcessSlot& process);
  void end_wait();

  // The fd of the file that is being fetched. False: there is no fetch.
  static bool note_fd(int fd);
  static bool has_fd(int fd);
  // Call it before the fd is closed or becomes the program's. False: it is already closed.
  static bool let_go_of_fd(int fd);
};

}  // namespace cube::cache
