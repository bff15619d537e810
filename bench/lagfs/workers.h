// The threads that serve the kernel's requests, each one request at a time, so that latencies
// overlap.
//
// settle() makes the counters exact. The kernel does not wait for RELEASE and read-ahead: when a
// worker already answers a later request, the read of the counters, another worker may have taken
// such a request and not counted it yet. settle() waits until every request that was taken before
// has been counted. It costs the hot path nothing: a signal makes a worker return that waits in the
// kernel, and so distinguishes it from one that has just returned with a request.
//
// Thread safety: start() and end_signal() are for the main thread; settle() and mark_counted() for
// the workers.
#pragma once

#include <fuse_lowlevel.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace cube::lagfs {

class Workers {
 public:
  // The signal that the first worker to see the end of the session sends to the process, once. The
  // main thread waits for it.
  static int end_signal();

  // Starts `count` threads. They run until the session ends. The process then exits without joining
  // them, because some may be in the middle of a configured hang. Call with every signal blocked
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
