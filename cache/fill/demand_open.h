// An open that has found no record in RAM: one fetch for the node, from a tier if the origin's stat
// is that of what the tier has, or from the origin -> publish -> Pin. A large file of the origin
// becomes a PartialFill, which the program's reads bring to that. A file that cannot be cached is
// handed over as a kernel fd, and an error is the origin's. Thread safety: an object belongs to one
// call; any number of them at a time. A signal handler that interrupts one must not make another
// (FetchScope).
#pragma once

#include "cache/fill/cache_parts.h"
#include "cache/fill/open_request.h"

namespace cube::cache {

class DemandOpen {
 public:
  DemandOpen(CacheParts& parts, const OpenRequest& request) : parts_(parts), request_(request) {}

  // `hash`: of the request's key.
  OpenOutcome open(std::uint64_t hash);
  // Without the cache: by the kernel, or a copy of what has no fd.
  OpenOutcome open_uncached(base::Counter reason);

 private:
  // Waits for the turn to fetch the file, looks again, and fetches.
  OpenOutcome open_in_flight(std::uint64_t hash, bool has_room);
  // Not inline, as the next: a thread may have a stack of 16 KB.
  [[gnu::noinline]] bool open_from_tier(Lane lane, OpenOutcome& outcome);
  [[gnu::noinline]] OpenOutcome fetch(Lane lane, SingleFlight::Ticket& flight);
  OpenOutcome fetch_opened(const Origin& origin, Opened& opened, RecordFill& fill,
                           SingleFlight::Ticket& flight);
  // The file is opened and its room is there; the program reads it part by part. False: it is to be
  // fetched as a whole.
  bool serve_in_parts(RecordFill& fill, Opened& opened, SingleFlight::Ticket& flight,
                      OpenOutcome& outcome);
  bool may_fetch_neighbours() const;
  void keep_neighbours(const Origin& origin, Opened& opened);
  // As a prefetch: an open of the same file waits for it meanwhile, and it waits for nobody.
  void keep_neighbour(const Opened::Neighbour& neighbour);
  // The origin gave no file.
  OpenOutcome fail(const Origin& origin, int error);
  OpenOutcome open_plain(base::Counter reason);
  // May a file that is refused for this reason be served in blocks?
  bool may_be_large(base::Counter reason) const;
  OpenOutcome hand_over(Opened& opened, base::Counter reason);

  CacheParts& parts_;
  const OpenRequest& request_;
};

}  // namespace cube::cache
