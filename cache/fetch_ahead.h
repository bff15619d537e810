// The part of FileCache for fetches that no program has asked for yet. The leader prefetches
// through it. Other processes report through it to the leader which files their programs read.
// Thread-safe, except for functions whose comment says otherwise.
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

// The demand of one job: the operations of its living processes at the origin.
struct Demand {
  std::uint32_t job = 0;
  unsigned waiting = 0;               // operations that wait now
  std::uint64_t fetches = 0, ns = 0;  // totals so far
  // Opens of prefetched files, including opens that waited for the prefetch.
  std::uint64_t ahead = 0;

  Demand& operator+=(const Demand& other) {
    waiting += other.waiting;
    fetches += other.fetches;
    ns += other.ns;
    ahead += other.ahead;
    return *this;
  }
};

class FetchAhead {
 public:
  explicit FetchAhead(CacheParts& parts) : parts_(parts) {}

  // Whether any process of this node wants prefetching.
  bool is_wanted() const { return (threads_wanted() & RegionHeader::k_to_prefetch) != 0; }
  void want() {
    parts_.region.header().threads_wanted.fetch_or(RegionHeader::k_to_prefetch,
                                                   std::memory_order_relaxed);
  }
  // Whether a background thread has any work: prefetching or another task.
  bool wants_thread() const { return threads_wanted() != 0; }
  // Frees memory that other users of the region's file system need. Returns true if the caller must
  // check again soon (k_look_at_room_ns).
  bool keep_room_for_others() {
    cube::cache::keep_room_for_others(parts_.region);
    return (threads_wanted() & RegionHeader::k_to_look_at_room) != 0;
  }
  // This process's claim to be the leader. The claim must not outlive the cache.
  LeadClaim lead_claim() { return LeadClaim(parts_.region); }
  // The leader calls these two functions in this order.
  void begin_lead();
  void end_lead() {
    note_depth(0);
    parts_.ram.release_ring_lease();
  }
  // Notes how many fetches may be in flight, for the report.
  void note_depth(std::uint32_t depth) {
    parts_.region.header().lead_depth.store(depth, std::memory_order_relaxed);
  }
  // The socket on which programs announce what they will read.
  std::string socket_path() const { return Region::socket_path_of(parts_.region.path()); }
  // How many entries of the job's list the leader has handled.
  std::atomic<std::uint64_t>& listed_of_job() {
    return parts_.region.job_row(parts_.region.own_job()).listed;
  }
  // One row for each job that has a living process.
  std::vector<Demand> demand_of_jobs() const;
  std::uint32_t own_job() const { return parts_.region.own_job(); }

  // Whether a program has just read the file from the origin. If so, BackgroundFill::begin()
  // returns `demanded`.
  bool is_just_missed(std::string_view key) const {
    return cube::cache::is_just_missed(parts_.region, base::hash_path(key));
  }
  // The cache and `key` must outlive the fill.
  BackgroundFill fill(std::string_view key, bool use_ring) { return {parts_, key, use_ring}; }
  // Whether other nodes may hold files.
  bool has_remote() const { return !parts_.remote.is_empty(); }
  // Null: all origins are mounts.
  const Origins* origins() const { return parts_.freshness.origins(); }
  const Origin& origin_of(std::string_view path) const { return parts_.freshness.origin_of(path); }
  std::uint64_t max_file() const { return parts_.rules.max_file; }  // bytes
  std::uint64_t segment_bytes() const { return parts_.region.layout().segment_bytes; }

  // The directories that programs have listed or read from. Used only while prefetching is on
  // (CUBESHIM_PREFETCH).
  Listings listings() { return Listings(parts_.region); }

  // Whether RAM has a record that this process can find under the path.
  bool is_here(std::string_view path) const {
    return static_cast<bool>(parts_.ram.find(path, base::hash_path(path)));
  }
  // Whether a tier of this node may have the file.
  bool may_be_in_tier(std::string_view path) const { return parts_.tiers.may_have(path); }
  // True if RAM has no room left outside the ring.
  bool is_full() const { return parts_.ram.is_full(); }
  // Reserves memory for one of the next `segments` free segments, before records need it. Returns
  // false if all these segments have memory already, or if no memory is left.
  bool prepare_room(std::uint32_t segments);
  Ring& ring() { return parts_.ram.ring(); }
  // Creates the ring if it does not exist yet.
  void make_ring(const base::RamSize& size);
  // Reserves a part of the ring for demand fetches. Call it before the ring is used for prefetches.
  void prepare_ring() {
    if (parts_.has_tiers()) parts_.ram.prepare_shared();
  }
  // The free bytes of the ring.
  std::uint64_t ring_room() { return parts_.ram.ring_room(); }

 private:
  std::uint32_t threads_wanted() const {
    return parts_.region.header().threads_wanted.load(std::memory_order_relaxed);
  }
  CacheParts& parts_;
};

}  // namespace cube::cache
