// The common part of both engines: it holds the fetches that have not begun, and ends all fetches.
//
// An engine derives its core from EngineCore. The engine's threads share ownership of the core, so
// it outlives them, hung threads included. engine_of() wraps the core in the IoEngine that the
// client holds. Thread safety: submit, depth and stop as io_engine.h says; the rest is for the
// engine's threads.
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

  // Starts a background thread that runs run(place) and keeps the core alive. Returns 0 or an
  // errno.
  int start_thread(void* place);

  virtual const char* name() const = 0;
  // Something was queued.
  virtual void wake() = 0;
  virtual void set_depth(unsigned depth) = 0;
  // Called when the queue is closed and empty: fetches in flight must come to an end.
  virtual void begin_stop() = 0;
  // Closes every gate, then abandons the fetches still in flight. Returns how many there were.
  virtual unsigned abandon_all() = 0;

  static unsigned bounded(unsigned depth);

  const EngineOptions options;
  FetchClient& client;
  FetchQueue queue;

 protected:
  virtual void run(void* place) = 0;
  // Ends the fetch at one place in flight, whose gate is closed. Returns how many fetches it
  // abandoned.
  unsigned abandon(Fetch* fetch, bool has_room);

 private:
  struct Start;
  static void thread_body(void* start);
};

std::unique_ptr<IoEngine> engine_of(std::shared_ptr<EngineCore> core);

}  // namespace cube::prefetch
