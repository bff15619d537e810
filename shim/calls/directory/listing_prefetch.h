// Directories that the program has listed. If programs then read files of such a directory, others
// of it are fetched ahead, in proportion to how many were read, unless a list or an announcement
// gives a better order (CUBESHIM_PREFETCH). All processes of the node know which directories were
// listed (cache/region/listings.h). Thread-safe; as async-signal-safe as an open, except note_miss,
// which may start the sidecar.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::cache {
class FileCache;
}

namespace cube::shim::listing_prefetch {

// Attaches to the cache, because processes other than the one that lists may read the files.
void note_listing(std::string_view directory);
// The file was fetched for the program.
void note_miss(cache::FileCache& cache, std::string_view file, std::uint64_t bytes);

}  // namespace cube::shim::listing_prefetch
