// The common part of both engines: the fetches that have not begun, and the end of all fetches.
//
// An engine derives its core, which belongs to its threads too and so outlives them, also those
// that hang; engine_of() makes of it what the client holds. Thread safety: submit, depth and stop
// as io_engine.h says; the rest by the engine's threads.
#pragma once

#include <memory>

#include "prefetch/engine/fetch_queue.h"
#include "prefetch/engine/io_engine.h"

namespace cube::prefetch {

class EngineCore : public std::enable_shared_from_this<EngineCore> {
 public:
  EngineCore(const EngineOptions& engine_options, FetchClient& of);
  virtual ~EngineCore() = default;
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // A background thread that runs run(place) and keeps the core. 0 or an errno.
  int start_thread(void* place);

  virtual const char* name() const = 0;
  // There is something in the queue.
  virtual void wake() = 0;
  virtual void set_depth(unsigned depth) = 0;
  // The queue is closed and empty: what is in flight is to come to an end.
  virtual void begin_stop() = 0;
  // Closes every gate, then abandons what is still in flight, and says how many that were.
  virtual unsigned abandon_all() = 0;

  static unsigned bounded(unsigned depth);

  const EngineOptions options;
  FetchClient& client;
  FetchQueue queue;

 protected:
  virtual void run(void* place) = 0;
  // Ends the fetch at one place in flight, whose gate is closed. Returns how many that were.
  unsigned abandon(Fetch* fetch, bool has_room);

 private:
  struct Start;
  static void thread_body(void* start);
};

std::unique_ptr<IoEngine> engine_of(std::shared_ptr<EngineCore> core);

}  // namespace cube::prefetch
