// A second thread, to which the client's thread hands one piece of work at a time without ever
// waiting for it. Life: start() makes the thread; end() tells it to end and does not wait; the side
// that ends last deletes the desk. Thread safety: the client's thread alone, except begin() and
// work(), which the helper calls.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/tier/cluster/wakeup.h"

namespace cube::cache {

class HelperDesk {
 public:
  // Wakes the client when the work is done.
  explicit HelperDesk(Wakeup& client) : client_(client) {}
  HelperDesk(const HelperDesk&) = delete;
  HelperDesk& operator=(const HelperDesk&) = delete;

  // Returns false if there is no thread; the desk is deleted then.
  [[nodiscard]] bool start();
  bool is_idle() const { return state_.load(std::memory_order_acquire) == idle; }
  bool is_asked() const { return state_.load(std::memory_order_acquire) == asked; }
  // True if there is a result, which belongs to the caller until the next ask().
  bool is_done() const { return state_.load(std::memory_order_acquire) == done; }
  void take() { state_.store(idle, std::memory_order_relaxed); }
  // May be called only while the desk is idle.
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
      idle};  // a futex; the side that changes it releases, the side that reads it acquires
  std::atomic<int> users_{2};
  Wakeup& client_;
};

// Starts a thread with all signals blocked, if that is possible. Set by code that has such threads.
// Returns false if there is no thread.
using StartHelperThread = bool (*)(void (*body)(void*), void* argument);
extern constinit std::atomic<StartHelperThread> g_start_helper_thread;

}  // namespace cube::cache
