// The fetch that a thread is performing. If a signal handler interrupts the fetch and opens files,
// these opens neither wait nor fetch. If the handler leaves the fetch by siglongjmp, no destructor
// runs. The thread's next open then finds that no handler is running, and cleans up: it ends the
// flight, closes the fd, and corrects the count of waiting programs. Invariants: an object lives on
// the stack of one open. The thread has a pointer to the newest object. After a jump, the fetch's
// room in a segment is lost. Thread safety: each thread has its own scopes. Async-signal-safe.
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
  // For a forked child: forgets the scope, because its flight and its fd belong to the parent.
  static void forget();

  // False: another open has ended this scope, because it mistook the scope for an abandoned one.
  // This mistake can happen if a handler continues on another stack. The caller must not publish a
  // record.
  bool is_own() const;
  // Registers the flight, and a second flight if there is one. These flights end if a jump leaves
  // this scope.
  void hold(const SingleFlight::Hold& flight, const SingleFlight::Hold& second = {});
  // Call these functions before and after the program waits for the origin. begin_wait() tells the
  // prefetcher that a program is waiting. end_wait() tells the prefetcher how long the program has
  // waited.
  void begin_wait(ProcessSlot& process);
  void end_wait();

  // Notes the fd of the file that is being fetched. False: there is no fetch.
  static bool note_fd(int fd);
  static bool has_fd(int fd);
  // Forgets the fd. Call it before the fd is closed or passed to the program. False: the fd is
  // already closed.
  static bool let_go_of_fd(int fd);
};

}  // namespace cube::cache
