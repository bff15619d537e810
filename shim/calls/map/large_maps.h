// Mappings of a large file. Parts that are present are mapped from the region, all others from the
// origin's file. Thread-safe and async-signal-safe.
#pragma once

#include "shim/calls/file_calls.h"
#include "shim/calls/map/mappings.h"

namespace cube::shim::large_maps {

// Returns the address or -errno, or nothing if libc must make the mapping.
file_calls::Answer map(int fd, const mappings::MapRequest& request);
// Counts a mapping of a large file that libc has made because map() returned nothing.
void note_mapping_by_libc();
// Fetches the whole range of an object that is served in blocks, then maps it. Returns nothing if
// the region cannot keep the range, in which case the kernel must map a copy.
file_calls::Answer map_object(OpenFile& file, const mappings::MapRequest& request);

}  // namespace cube::shim::large_maps
