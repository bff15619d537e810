// The two checksums of a record in memory, on the disk, in a pack and in the cluster. The first
// checksum covers the header and the path, the second covers the data. Thread safety: pure
// functions.
#pragma once

#include "cache/record/record.h"

namespace cube::cache {

// xxh3 of the path and of the header, but not of the marks and of the header hash itself.
std::uint64_t header_hash_of(const Record& record);

// Whether the header is undamaged and the record ends within `available` bytes. Does not read the
// data.
bool header_is_sound(const Record& record, std::uint64_t available);
bool data_is_sound(const Record& record);

}  // namespace cube::cache
