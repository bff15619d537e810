// The common part of both engines: it holds the fetches that have not begun, and ends all fetches.
//
// An engine derives its core from EngineCore. engine_of() wraps the core in the IoEngine that the
// client holds. Thread safety: submit, depth and stop as in io_engine.h; the rest is for the
// engine's threads.
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

  // Starts the first thread. Returns false if it cannot have an fd table of its own.
  bool begin(std::string& why);
  virtual const char* name() const = 0;
  // Called after something was queued.
  virtual void wake() = 0;
  virtual void set_depth(unsigned depth) = 0;
  // Called when the queue is closed and empty: fetches in flight must end.
  virtual void end_flights() = 0;
  // Closes every gate, then abandons the fetches still in flight. Returns how many there were.
  virtual unsigned abandon_all() = 0;

  static unsigned bounded(unsigned depth);

  const EngineOptions options;
  FetchClient& client;
  FetchQueue queue;

 protected:
  // begin() tells it.
  void work_without_table(int) override {}
  // Ends the fetch at one place in flight. The gate of the place is closed. Returns how many
  // fetches it abandoned.
  unsigned abandon(Fetch* fetch, bool has_room);
};

std::unique_ptr<IoEngine> engine_of(CrewPtr<EngineCore> core);

}  // namespace cube::prefetch
