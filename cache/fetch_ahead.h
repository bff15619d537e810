// The cache as those see it who fetch before a program asks: the process of the node that leads,
// and those that tell it what programs read. Thread safety: all of it, but for what is said.
#pragma once

#include <string>
#include <vector>

#include "cache/base/hash.h"
#include "cache/fill/background_fill.h"
#include "cache/fill/cache_parts.h"
#include "cache/fill/recent_misses.h"
#include "cache/region/life/lead_claim.h"
#include "cache/region/life/room_for_others.h"
#include "cache/region/listings.h"

namespace cube::cache {

// The programs of the node that wait for fetches of their own.
struct Demand {
  unsigned waiting = 0;               // operations now
  std::uint64_t fetches = 0, ns = 0;  // so far, of the processes that live
};

// The same of a job.
struct JobDemand {
  std::uint32_t job = 0;
  std::uint64_t fetches = 0;
  std::uint64_t ahead =
      0;  // opens of files that were fetched ahead, also if they had to wait for that
};

class FetchAhead {
 public:
  explicit FetchAhead(CacheParts& parts) : parts_(parts) {}

  // Is anything prefetched on this node?
  bool is_wanted() const { return (threads_wanted() & RegionHeader::k_to_prefetch) != 0; }
  void want() {
    parts_.region.header().threads_wanted.fetch_or(RegionHeader::k_to_prefetch,
                                                   std::memory_order_relaxed);
  }
  // Is there anything to do for a thread beside the program, prefetching or else?
  bool wants_thread() const { return threads_wanted() != 0; }
  // Gives back to others the memory that they need of the region's file system. Returns whether to
  // look again soon (k_look_at_room_ns).
  bool keep_room_for_others() {
    cube::cache::keep_room_for_others(parts_.region);
    return (threads_wanted() & RegionHeader::k_to_look_at_room) != 0;
  }
  // Our claim to the lead. The claim must not outlive the cache.
  LeadClaim lead_claim() { return LeadClaim(parts_.region); }
  // For the leader, in this order.
  void begin_lead();
  void end_lead() {
    note_depth(0);
    parts_.ram.release_ring_lease();
  }
  // How many fetches may be in flight, for the report.
  void note_depth(std::uint32_t depth) {
    parts_.region.header().lead_depth.store(depth, std::memory_order_relaxed);
  }
  // The socket on which programs announce what they will read.
  std::string socket_path() const { return Region::socket_path_of(parts_.region.path()); }
  // How much of the job's list has been dealt with, as its leader counts it.
  std::atomic<std::uint64_t>& listed_of_job() {
    return parts_.region.job_row(parts_.region.own_job()).listed;
  }
  Demand demand() const;
  // Each job that has a process, once.
  void demand_of_jobs(std::vector<JobDemand>& jobs) const;
  std::uint32_t own_job() const { return parts_.region.own_job(); }

  // A program has just read it from the origin: begin() of its fill says demanded.
  bool is_just_missed(std::string_view key) const {
    return cube::cache::is_just_missed(parts_.region, base::hash_path(key));
  }
  // Both must outlive the fill.
  BackgroundFill fill(std::string_view key, bool use_ring) { return {parts_, key, use_ring}; }
  // May other nodes have files?
  bool has_remote() const { return !parts_.remote.is_empty(); }
  // Null: there are only mounts.
  const Origins* origins() const { return parts_.freshness.origins(); }
  const Origin& origin_of(std::string_view path) const { return parts_.freshness.origin_of(path); }
  std::uint64_t max_file() const { return parts_.rules.max_file; }  // bytes
  std::uint64_t segment_bytes() const { return parts_.region.layout().segment_bytes; }

  // Listed directories and the reads from them. Used only while prefetching is on
  // (CUBESHIM_PREFETCH).
  Listings listings() { return Listings(parts_.region); }

  // Is there a record of it that this process may find?
  bool is_here(std::string_view path) const {
    return static_cast<bool>(parts_.ram.find(path, base::hash_path(path)));
  }
  // Is there no room for what is to stay?
  bool is_full() const { return parts_.ram.is_full(); }
  // Gets memory for one of the next `segments` free segments, which the next records find ready.
  // False: all of them have it, or there is none to be had.
  bool prepare_room(std::uint32_t segments);
  Ring& ring() { return parts_.ram.ring(); }
  // No-op if there is one.
  void make_ring(const base::RamSize& size);
  // Leaves room in it for what programs fetch, before it is used for what is prefetched.
  void prepare_ring() {
    if (parts_.has_tiers()) parts_.ram.prepare_shared();
  }
  // Bytes that the ring has room for.
  std::uint64_t ring_room() { return parts_.ram.ring_room(); }

 private:
  std::uint32_t threads_wanted() const {
    return parts_.region.header().threads_wanted.load(std::memory_order_relaxed);
  }
  CacheParts& parts_;
};

}  // namespace cube::cache
