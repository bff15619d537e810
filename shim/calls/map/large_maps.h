// Mappings of a large file: what is present of it comes from the region, all else is the kernel's
// mapping of the origin's file. Thread safety: all of it; async-signal-safe.
#pragma once

#include "shim/calls/file_calls.h"
#include "shim/calls/map/mappings.h"

namespace cube::shim::large_maps {

// The address or -errno; nothing where libc is to do it.
file_calls::Answer map(int fd, const mappings::MapRequest& request);

}  // namespace cube::shim::large_maps
