// A mapping of a copy: a memfd that holds the whole served file, and whose only fd is closed after
// the mapping. A copy is used for records whose place in the region may be reused later (the ring),
// and for records in a forked child's own memory (keep_own_copies). The kernel treats the mapping
// like any mapping of a file that was opened read-only, so advice, protection, size and forks work
// as for the origin's file. Invariant: the copies of one process use at most a fixed share of the
// region; beyond this share, the kernel maps the origin's file. Thread-safe and async-signal-safe.
#pragma once

#include <cstdint>

#include "shim/calls/map/map_request.h"
#include "shim/fd/open_file.h"

namespace cube::shim::mapped_copy {

// Returns how many bytes a copy of this file counts for.
std::uint64_t cost(const OpenFile& file);
// Returns the address or -errno. -ESTALE and -ENOMEM mean that no copy can be made. A successful
// copy counts towards the share of the process until drop() is called with its size.
long map(const OpenFile& file, const mappings::MapRequest& request, std::uint64_t most_bytes);

// Counts another mapping of the same copy.
void add(std::uint64_t bytes);
void drop(std::uint64_t bytes);
// Call this in a forked child. The existing copies count only towards the share of the parent.
void forget_after_fork();

}  // namespace cube::shim::mapped_copy
