// A question to the servers: a row of a table that the threads of the program and the client's
// thread share. Its state says whose the row is: the asker's (taken, done), the thread's (queued,
// sent, left), or nobody's. Thread safety: by the state.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/memory/mapping.h"
#include "cache/tier/cluster/cluster_key.h"

namespace cube::cache {

struct ClusterRequest {
  enum State : std::uint32_t {
    free,
    taken,   // it is being written
    queued,  // the thread shall send it
    sent,
    done,  // the asker reads the answer
    left   // nobody waits any more: the thread frees it
  };
  enum class Ask : std::uint8_t { get, remove };
  enum class Outcome : std::uint8_t {
    hit,
    none,
    won,    // there is none, and the asker has the lease
    taken,  // there is none yet: another has the lease
    late,   // no answer in time
    skipped
  };

  // A futex. The asker's release (queued) pairs with the thread's acquire, the thread's (done) with
  // the asker's.
  std::atomic<std::uint32_t> state{free};
  Ask ask = Ask::get;
  bool is_ahead = false;                       // no program waits for it
  bool was_late = false, is_admitted = false;  // noted by the thread
  unsigned lease_seconds = 0;
  std::size_t server = 0;
  ClusterKey key;
  std::uint64_t deadline_ns = 0, sent_ns = 0;  // base::monotonic_ns
  std::uint64_t cas = 0;                       // of the question (remove), or of the answer
  Outcome outcome = Outcome::skipped;
  std::uint64_t size = 0;  // bytes of the value in `buffer`
  // The thread's to change; kept for the next. A child that a handler has forked may return into a
  // read of it.
  base::Mapping buffer;
};

}  // namespace cube::cache
