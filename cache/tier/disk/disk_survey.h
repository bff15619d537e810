// A cache directory on disk, looked at and removed from outside of any job (cubeshim doctor,
// cubeshim clear). Invariants: looking changes nothing; only files with names of ours are removed.
// Thread safety: all of it. Not for programs that the library is loaded into: it may wait for the
// disk.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/tier/disk/disk_directory.h"

namespace cube::cache {

struct DiskSurvey {
  std::uint64_t segments = 0, bytes = 0;
  std::uint64_t records = 0;             // of those with a sound footer
  std::uint64_t being_written = 0;       // by a job that runs
  std::vector<std::uint32_t> no_footer;  // damaged, or their writer was killed
  std::vector<std::uint32_t> unreadable;
};
base::Result<DiskSurvey> survey_disk(const DiskDirectory& directory);

// Does a job use it, or is one about to?
bool is_in_use(const DiskDirectory& directory);

struct DiskRemoved {
  std::uint64_t segments = 0, bytes = 0;
  bool has_others = false;  // files of somebody else: the directory stays for them
};
// EBUSY: a job uses it; not if `force`.
base::Result<DiskRemoved> remove_disk(const DiskDirectory& directory, bool force);

}  // namespace cube::cache
