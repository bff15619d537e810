// A second thread. The client's thread gives it one piece of work at a time, and never waits for
// it. Life: start() creates the thread. end() tells the thread to end, without waiting. The side
// that ends last deletes the desk. Thread safety: only the client's thread calls the functions,
// except begin() and work(), which the helper thread calls.
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

  // Returns false if no thread could be created. The desk is then deleted.
  [[nodiscard]] bool start();
  bool is_idle() const { return state_.load(std::memory_order_acquire) == idle; }
  bool is_asked() const { return state_.load(std::memory_order_acquire) == asked; }
  // Whether there is a result. The result belongs to the caller until the next ask().
  bool is_done() const { return state_.load(std::memory_order_acquire) == done; }
  void take() { state_.store(idle, std::memory_order_relaxed); }
  // Asks for work. May be called only while the desk is idle.
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
      idle};  // a futex; a store is a release, and a load is an acquire
  std::atomic<int> users_{2};
  Wakeup& client_;
};

// A function that starts a thread with all signals blocked. Code that can start such threads sets
// it. The function returns false if no thread can be started.
using StartHelperThread = bool (*)(void (*body)(void*), void* argument);
extern constinit std::atomic<StartHelperThread> g_start_helper_thread;

}  // namespace cube::cache
