// The threads that serve the kernel's requests. Each thread serves one request at a time, so the
// latencies of different requests overlap.
//
// settle() makes the counters exact. The kernel does not wait for RELEASE and read-ahead. So when a
// worker answers a read of the counters, another worker can have an earlier request of this kind
// that is not counted yet. settle() waits until all earlier requests are counted, at no cost for
// the hot path. It sends a signal, which makes a worker that waits in the kernel return. A worker
// that has just returned with a request is not affected.
//
// Thread safety: only the main thread may call start() and end_signal(); only workers may call
// settle() and mark_counted().
#pragma once

#include <fuse_lowlevel.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace cube::lagfs {

class Workers {
 public:
  // The signal for the end of the session. The first worker that sees the end sends it to the
  // process. The main thread waits for it.
  static int end_signal();

  // Starts `count` threads, which run until the session ends. The process then exits without
  // joining them, because some might be in a configured hang. Before the call, block all signals
  // that the main thread waits for.
  void start(fuse_session* session, unsigned count);

  // Returns when all requests that were taken from the kernel before this call have been counted.
  void settle();
  // Notes that this worker has counted its request; only the wait and the reply remain.
  static void mark_counted();

 private:
  enum class State : std::uint8_t { receiving, handling, counted };

  struct alignas(64) Worker {
    std::atomic<std::uint64_t> turn{0};  // requests begun; written only by its owner
    std::atomic<State> state{State::counted};
    pthread_t thread{};  // set by its owner before its first turn
  };

  void run(Worker& self);

  static thread_local Worker* current_;

  fuse_session* session_ = nullptr;
  unsigned count_ = 0;
  std::unique_ptr<Worker[]> workers_;
  std::atomic<bool> ended_{false};
};

}  // namespace cube::lagfs
