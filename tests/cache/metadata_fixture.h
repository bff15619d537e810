// Listings and gathered stats of one directory, made as threads of the library make them.
#pragma once

#include <dirent.h>

#include <string>
#include <string_view>

#include "cache/metadata/mount_metadata.h"
#include "cache/metadata/stat_gather.h"

namespace cube::tests {

// Returns how many entries the directory has, or -1 if it is left to the kernel.
inline int entries_of(cache::MountMetadata& names, const std::string& directory) {
  const cache::MountMetadata::Listed listed = names.list(directory, directory.c_str());
  if (listed.listing == nullptr) return -1;
  int n = 0;
  for (std::uint64_t at = 0; at < listed.listing->end(); at += listed.listing->at(at)->d_reclen)
    ++n;
  listed.listing->release();
  return n;
}

// Gathers the stats of all entries. False if they need none.
inline bool gather(cache::MountMetadata& names, const std::string& directory,
                   std::string_view asked) {
  const auto work = cache::StatGather::begin(names, directory, asked);
  if (work == nullptr) return false;
  const base::UniqueFd own = work->open();
  while (work->step(own.get())) {
  }
  return true;
}

}  // namespace cube::tests
