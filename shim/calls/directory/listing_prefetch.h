// Directories that the program has listed. If programs then read file after file from one, its
// files are fetched ahead, in proportion to how many they read, unless something better is known
// (CUBESHIM_PREFETCH). All processes of the node know which directories were listed
// (cache/region/listings.h). Thread-safe; as async-signal-safe as an open, except note_miss, which
// may start the sidecar.
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
