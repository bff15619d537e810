// Loads the metadata of whole trees into the cache: the listing of each directory and, if
// requested, the stats of all its entries. Uses several threads, because a slow origin has a high
// latency. Does not follow links. Thread safety: one caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/file_cache.h"
#include "shim/cli/warmup/progress.h"
#include "shim/cli/warmup/skipped.h"

namespace cube::cli {

struct LoadedMetadata {
  std::uint64_t directories = 0;  // directories whose listings are cached
  std::uint64_t names = 0;        // entries of these listings
  std::uint64_t stats = 0;        // cached stats
  std::vector<SkippedRow> skipped;
};

struct MetadataToLoad {
  std::vector<std::string> roots;  // absolute paths of directories
  bool with_stats = false;
};

// Returns early after an interrupt.
LoadedMetadata load_metadata(cache::FileCache& cache, const MetadataToLoad& wanted,
                             Progress& progress);

}  // namespace cube::cli
