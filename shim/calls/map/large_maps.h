// Mappings of a large file: parts that are present come from the region, everything else from the
// kernel's mapping of the origin's file. Thread-safe and async-signal-safe.
#pragma once

#include "shim/calls/file_calls.h"
#include "shim/calls/map/mappings.h"

namespace cube::shim::large_maps {

// Returns the address or -errno, or nothing if libc must make the mapping.
file_calls::Answer map(int fd, const mappings::MapRequest& request);
// Maps an object that is served in blocks, after its whole range has been fetched. Returns nothing
// if the kernel must map a copy, because the region cannot keep the range.
file_calls::Answer map_object(OpenFile& file, const mappings::MapRequest& request);

}  // namespace cube::shim::large_maps
