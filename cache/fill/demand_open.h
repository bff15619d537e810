// An open of a file that has no record in RAM. One process of the node fetches the file. If a tier
// has a record that matches the origin's stat, the bytes come from the tier, and otherwise from the
// origin. The process publishes the record and returns a Pin. A file of 1 MiB or more on a mount
// can become a PartialFill, which the program's reads complete. If a file cannot be cached, the
// caller gets a kernel fd. Errors are those of the origin. Thread safety: an object belongs to one
// call. Several objects may exist at the same time. A signal handler that interrupts such an open
// must not start another open of this kind (FetchScope).
#pragma once

#include "cache/fill/cache_parts.h"
#include "cache/fill/open_request.h"

namespace cube::cache {

class DemandOpen {
 public:
  DemandOpen(CacheParts& parts, const OpenRequest& request) : parts_(parts), request_(request) {}

  // `hash`: base::hash_path of the request's key.
  OpenOutcome open(std::uint64_t hash);
  // Opens the file without the cache. The result is the kernel's file, or a copy if the origin has
  // no kernel fd.
  OpenOutcome open_uncached(base::Counter reason);

 private:
  // Waits for the flight, looks for the record again, and fetches the file if there is still no
  // record.
  OpenOutcome open_in_flight(std::uint64_t hash, bool has_room);
  // Finds the record that another fetch may have published since the first lookup.
  // `waited_for_prefetch`: this open has waited for a prefetch of the file.
  bool find_again(std::uint64_t hash, bool waited_for_prefetch, OpenOutcome& outcome);
  // These two functions are not inlined, because a thread may have a stack of only 16 KB.
  [[gnu::noinline]] bool open_from_tier(Lane lane, OpenOutcome& outcome);
  [[gnu::noinline]] OpenOutcome fetch(Lane lane, SingleFlight::Ticket& flight);
  OpenOutcome fetch_opened(const Origin& origin, Opened& opened, RecordFill& fill,
                           SingleFlight::Ticket& flight);
  // Makes the opened file a PartialFill: the program's reads fetch its parts into the reserved
  // room. False: the file must be fetched as a whole.
  bool serve_in_parts(RecordFill& fill, Opened& opened, SingleFlight::Ticket& flight,
                      OpenOutcome& outcome);
  // If another open of this process is already fetching the file in parts, joins that fetch. This
  // open gets its own fd. False: no open is fetching the file in parts.
  [[gnu::noinline]] bool join_parts(std::uint64_t hash, OpenOutcome& outcome);
  void note_miss_time(std::uint64_t began_ns);
  bool may_fetch_neighbours() const;
  void keep_neighbours(const Origin& origin, Opened& opened);
  // Publishes the neighbour as a prefetch would. Does nothing if another fetch of the neighbour is
  // in progress.
  void keep_neighbour(const Opened::Neighbour& neighbour);
  // Finds the record that the origin has put into RAM. False: there is no such record.
  bool take_filled(const Opened& opened, OpenOutcome& outcome);
  void count_miss(bool is_of_bucket);
  // Returns the outcome of this open after the origin's open has failed.
  OpenOutcome fail(const Origin& origin, int error);
  OpenOutcome open_plain(base::Counter reason);
  // Whether a file that was not cached for this reason may be served in blocks.
  bool may_be_large(base::Counter reason) const;
  OpenOutcome hand_over(Opened& opened, base::Counter reason);

  CacheParts& parts_;
  const OpenRequest& request_;
};

}  // namespace cube::cache
