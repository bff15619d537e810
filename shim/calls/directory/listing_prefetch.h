// Directories that the program has listed. When programs read files of a listed directory, the
// cache fetches more files of the directory ahead, in proportion to the number of files read. If a
// list or an announcement gives a better order, the listing is ignored (CUBESHIM_PREFETCH). All
// processes of the node share the record of listed directories (cache/region/listings.h).
// Thread-safe. note_listing is as async-signal-safe as an open; note_miss is not, because it may
// start the sidecar.
#pragma once

#include <cstdint>
#include <string_view>

namespace cube::cache {
class FileCache;
}

namespace cube::shim::listing_prefetch {

// Attaches to the cache, so that other processes, which may read the files, learn of the listing.
void note_listing(std::string_view directory);
// Call this after the file was fetched for the program.
void note_miss(cache::FileCache& cache, std::string_view file, std::uint64_t bytes);

}  // namespace cube::shim::listing_prefetch
