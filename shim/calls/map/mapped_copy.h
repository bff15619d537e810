// A mapping of a file of its own: the whole served file in a memfd, whose only fd is closed again.
// Used for records whose place in the region may be reused later (the ring). To the kernel it is a
// mapping of a file that is open only for reading, so advice, protection, size and forks work as
// for the origin's file. Invariant: the copies of one process take at most a fixed share of the
// region; beyond that, the kernel maps the origin's file. Thread-safe and async-signal-safe.
#pragma once

#include <cstdint>

#include "shim/calls/map/map_request.h"
#include "shim/fd/open_file.h"

namespace cube::shim::mapped_copy {

// Returns the bytes that a copy counts for.
std::uint64_t cost(const OpenFile& file);
// Returns the address or -errno. -ESTALE and -ENOMEM mean that no copy can be made. On success the
// copy counts towards that share until drop() is called with its size.
long map(const OpenFile& file, const mappings::MapRequest& request, std::uint64_t most_bytes);

// Counts one more mapping of the same copy.
void add(std::uint64_t bytes);
void drop(std::uint64_t bytes);
// For a forked child: the copies so far are its parent's.
void forget_after_fork();

}  // namespace cube::shim::mapped_copy
