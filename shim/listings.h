// Directories that the program has listed: one from which it then reads file after file is fetched as a whole, where nothing
// better is known (CUBESHIM_PREFETCH). A child by fork knows what its parent has listed.
// Thread safety: all of it; async-signal-safe but for note_miss, which may start the sidecar.
#pragma once

#include <string_view>

namespace cube::cache {
class FileCache;
}

namespace cube::shim::listings {

void note_listing(std::string_view directory);
// The file was fetched for the program.
void note_miss(cache::FileCache& cache, std::string_view file);

}  // namespace cube::shim::listings
