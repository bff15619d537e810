// A request to the servers. Requests are rows of a table that the threads of the program share with
// the client's thread. The state determines the owner of the row: the asker (taken, done), the
// client's thread (queued, sent, left), or nobody (free). Thread safety: only the owner uses the
// row.
#pragma once

#include <atomic>
#include <cstdint>

#include "cache/base/memory/mapping.h"
#include "cache/tier/cluster/cluster_key.h"

namespace cube::cache {

struct ClusterRequest {
  enum State : std::uint32_t {
    free,
    taken,   // the asker is writing it
    queued,  // the thread will send it
    sent,
    done,  // the asker reads the answer
    left   // the asker has given up, so the thread frees the row
  };
  enum class Ask : std::uint8_t { get, remove };
  enum class Outcome : std::uint8_t {
    hit,
    none,
    won,    // the servers have no value, and the asker has the lease
    taken,  // the servers have no value yet: another node has the lease
    late,   // no answer arrived in time
    skipped
  };

  // A futex. The asker's release (queued) pairs with the acquire of the client's thread. The
  // release of the client's thread (done) pairs with the asker's acquire.
  std::atomic<std::uint32_t> state{free};
  Ask ask = Ask::get;
  bool is_ahead = false;                       // no program waits for the answer
  bool was_late = false, is_admitted = false;  // set by the client's thread
  unsigned lease_seconds = 0;
  std::size_t server = 0;
  ClusterKey key;
  std::uint64_t deadline_ns = 0, sent_ns = 0;  // base::monotonic_ns
  std::uint64_t cas = 0;                       // the version to remove, or the version in the
                                               // answer
  Outcome outcome = Outcome::skipped;
  std::uint64_t size = 0;  // bytes of the value in `buffer`
  // Only the client's thread changes this mapping, and keeps it for the next request. Forked
  // children also have the mapping: a child that a signal handler has forked may return into a read
  // of the buffer.
  base::Mapping buffer;
};

}  // namespace cube::cache
