// The leader's work, iteration by iteration: it offers the files of the plan to the prefetcher,
// adapts the depth to the programs' waits, and keeps the ring free of records that will not be
// read. Thread safety: one thread, except stop().
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/settings/config.h"
#include "cache/file_cache.h"
#include "prefetch/pace/depth.h"
#include "prefetch/threads/event_count.h"
#include "prefetch/work/plan.h"
#include "prefetch/work/prefetcher.h"

namespace cube::prefetch {

class LeaderWork {
 public:
  // `claim` must hold the lead.
  LeaderWork(cache::FileCache& cache, const base::Config& config, EventCount& events,
             cache::LeadClaim& claim)
      : cache_(cache),
        config_(config),
        events_(events),
        claim_(claim),
        depth_(most_in_flight(config.prefetch_depth)),
        plan_(cache) {}

  // Returns false if nothing can be prefetched here; the log says why.
  bool begin();
  // Call after begin(): opens the sources of the plan. The call may wait for the origin.
  void open();
  // Runs one iteration. Returns how many nanoseconds the caller can wait before the next iteration
  // if no event occurs.
  std::uint64_t turn();
  // Waits for an event later than `seen`.
  void wait(std::uint32_t seen, std::uint64_t at_most_ns);
  // Ends the fetches under way; no file is fetched afterwards. Callable by any thread.
  void stop(unsigned patience_ms) { prefetcher_->stop(patience_ms); }
  // Removes the socket before end() does. Callable by any thread.
  void remove_socket();
  // Call after the last turn() if another process leads now. Disconnects the clients and accepts no
  // more files.
  void lose();
  // Returns true if every file accepted before lose() has been fetched or waits for room.
  bool is_drained() { return prefetcher_->is_idle() || prefetcher_->is_blocked(); }
  // Call after the last turn(), and after lose() if lose() was called.
  void end(unsigned patience_ms);

 private:
  static unsigned most_in_flight(unsigned wanted);
  void open_list();
  void make_ring();
  void note_listed();
  void end_round(std::uint64_t now);
  void listen();
  std::string socket_path() const { return cache_.ahead().socket_path(); }
  bool feed();
  bool wants_more_of_next();
  void adapt_depth(std::uint64_t now);
  void free_ring(std::uint64_t now);
  void prepare_room();

  cache::FileCache& cache_;
  const base::Config& config_;
  EventCount& events_;
  cache::LeadClaim& claim_;
  Depth depth_;
  std::unique_ptr<cache::Origins> origins_;  // this thread's; null: all files are on mounts
  std::unique_ptr<Prefetcher> prefetcher_;
  Plan plan_;
  base::Mutex socket_mutex_;  // guards which announcements plan_ has
  PlannedFile next_;
  bool has_next_ = false, has_ring_ = false;
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t round_began_ns_ = 0, next_round_ns_ = 0, fetched_before_ = 0;
};

}  // namespace cube::prefetch
