// The common part of both engines: it holds the fetches that have not begun, and ends all fetches.
//
// Each engine derives its core from EngineCore. engine_of() wraps the core in the IoEngine that the
// client holds. Thread safety: submit, depth and stop are like those of io_engine.h; only the
// engine's threads may call the other functions.
#pragma once

#include <memory>
#include <string>

#include "prefetch/engine/fetch_queue.h"
#include "prefetch/engine/io_engine.h"
#include "prefetch/threads/thread_crew.h"

namespace cube::prefetch {

class EngineCore : public ThreadCrew {
 public:
  EngineCore(const EngineOptions& engine_options, FetchClient& of);

  // Starts the first thread. Returns false if the thread cannot have its own fd table.
  bool begin(std::string& why);
  virtual const char* name() const = 0;
  // Called after something was queued.
  virtual void wake() = 0;
  virtual void set_depth(unsigned depth) = 0;
  // Called when the queue is closed and empty. Must make the fetches in flight end.
  virtual void end_flights() = 0;
  // Closes every gate, then abandons the fetches still in flight. Returns how many it abandoned.
  virtual unsigned abandon_all() = 0;

  static unsigned bounded(unsigned depth);

  const EngineOptions options;
  FetchClient& client;
  FetchQueue queue;

 protected:
  // Does nothing, because begin() reports the error.
  void work_without_table(int) override {}
  // Ends a fetch in flight whose gate is closed. Returns how many fetches this has abandoned.
  unsigned abandon(Fetch* fetch, bool has_room);
};

std::unique_ptr<IoEngine> engine_of(CrewPtr<EngineCore> core);

}  // namespace cube::prefetch
