// The fetch that a thread is at. While there is one, a signal handler of the same thread that opens
// files neither waits nor fetches. A handler may also leave by siglongjmp, and then nothing on the
// stack is destroyed: the next open of the thread finds that no handler runs, and ends what was
// left behind: the flight, the fd, the count of those who wait. Invariants: an object lives on the
// stack of one open; the thread knows the one that was made last. Its room in a segment is not
// given back after a jump. Thread safety: each thread has its own. Async-signal-safe.
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

  // Is this thread inside one?
  static bool is_open();
  // In a forked child: what it holds is the parent's.
  static void forget();

  // False: it was taken for left behind and has been ended (the handler has gone on on another
  // stack). Nothing may be published then.
  bool is_own() const;
  // The flight, which ends if this is left behind.
  void hold(const SingleFlight::Hold& flight);
  // The program waits for the origin from now on, which the prefetcher is told, and how long it
  // did.
  void begin_wait(ProcessSlot& process);
  void end_wait();

  // The fd of the file that is fetched. False: there is no fetch.
  static bool note_fd(int fd);
  static bool has_fd(int fd);
  // Before it is closed, or becomes the program's. False: it is closed already.
  static bool let_go_of_fd(int fd);
};

}  // namespace cube::cache
