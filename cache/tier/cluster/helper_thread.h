// A thread beside the client's, which asks it for one thing at a time and never waits for it.
// Life: start() makes the thread, end() tells it to end and does not wait: the desk goes with the
// last of both. Thread safety: the client's thread alone, but for begin() and work(), which are the
// helper's.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/tier/cluster/wakeup.h"

namespace cube::cache {

class HelperDesk {
 public:
  // Wakes the client when something is done.
  explicit HelperDesk(Wakeup& client) : client_(client) {}
  HelperDesk(const HelperDesk&) = delete;
  HelperDesk& operator=(const HelperDesk&) = delete;

  // False: there is no thread, and the desk is gone.
  [[nodiscard]] bool start();
  bool is_idle() const { return state_.load(std::memory_order_acquire) == idle; }
  bool is_asked() const { return state_.load(std::memory_order_acquire) == asked; }
  // Its work is there to be taken: it is the caller's until it asks again.
  bool is_done() const { return state_.load(std::memory_order_acquire) == done; }
  void take() { state_.store(idle, std::memory_order_relaxed); }
  // While it is idle.
  void ask();
  void end();

 protected:
  virtual ~HelperDesk() = default;
  virtual void begin() {}
  virtual void work() = 0;

 private:
  enum State : std::uint32_t { idle, asked, done, over };
  static void run(void* desk);
  void let_go();

  std::atomic<std::uint32_t> state_{
      idle};  // a futex; release by who changes it, acquire by who finds it changed
  std::atomic<int> users_{2};
  Wakeup& client_;
};

// Starts a thread with signals blocked, where that can be done; set by who has such threads. False:
// there is none.
using StartHelperThread = bool (*)(void (*body)(void*), void* argument);
extern constinit std::atomic<StartHelperThread> g_start_helper_thread;

}  // namespace cube::cache
