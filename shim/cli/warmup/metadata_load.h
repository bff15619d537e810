// Loads the metadata of whole trees into the cache: the listing of each directory and, if wanted,
// the stats of all its entries. It uses several threads, because a slow origin answers each request
// late. Links are not followed. Thread safety: one caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/file_cache.h"
#include "shim/cli/warmup/progress.h"
#include "shim/cli/warmup/skipped.h"

namespace cube::cli {

struct LoadedMetadata {
  std::uint64_t directories = 0;  // whose listings are cached
  std::uint64_t names = 0;        // in these listings
  std::uint64_t stats = 0;        // stats that are cached
  std::vector<SkippedRow> skipped;
};

struct MetadataToLoad {
  std::vector<std::string> roots;  // absolute paths of directories
  bool with_stats = false;
};

// Ends early if the command is interrupted.
LoadedMetadata load_metadata(cache::FileCache& cache, const MetadataToLoad& wanted,
                             Progress& progress);

}  // namespace cube::cli
