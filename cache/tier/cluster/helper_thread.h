// A helper thread and its state, the desk. The client's thread gives the helper one piece of work
// at a time, and never waits for it. start() creates the helper. end() tells it to end, without
// waiting. The thread that uses the desk last deletes it. Thread safety: the helper calls begin()
// and work(). Only the client's thread calls the other functions.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/tier/cluster/wakeup.h"

namespace cube::cache {

class HelperDesk {
 public:
  // `client` is woken when a piece of work is done.
  explicit HelperDesk(Wakeup& client) : client_(client) {}
  HelperDesk(const HelperDesk&) = delete;
  HelperDesk& operator=(const HelperDesk&) = delete;

  // Returns false if no thread could be created. The desk is then deleted.
  [[nodiscard]] bool start();
  bool is_idle() const { return state_.load(std::memory_order_acquire) == idle; }
  bool is_asked() const { return state_.load(std::memory_order_acquire) == asked; }
  // Whether there is a result. Until the next ask(), only the client's thread uses the result.
  bool is_done() const { return state_.load(std::memory_order_acquire) == done; }
  void take() { state_.store(idle, std::memory_order_relaxed); }
  // Gives the helper work. Call it only while the desk is idle.
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

// A function that starts a thread with all signals blocked, or returns false if it cannot. Code
// that can start such threads sets this pointer.
using StartHelperThread = bool (*)(void (*body)(void*), void* argument);
extern constinit std::atomic<StartHelperThread> g_start_helper_thread;

}  // namespace cube::cache
