// Functions for the command to inspect and remove a directory of the disk tier (cubeshim doctor,
// cubeshim clear). Invariants: an inspection changes nothing, and only files with names of the disk
// tier are removed. Thread-safe. The functions may wait for the disk, so the library must not call
// them in a program.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/tier/disk/disk_directory.h"

namespace cube::cache {

struct DiskSurvey {
  std::uint64_t segments = 0, bytes = 0;
  std::uint64_t records = 0;             // records in files with a sound footer
  std::uint64_t being_written = 0;       // files that a running job writes
  std::vector<std::uint32_t> no_footer;  // damaged, or the writer was killed
  std::vector<std::uint32_t> unreadable;
};
base::Result<DiskSurvey> survey_disk(const DiskDirectory& directory);

// Whether a job uses the directory, or is about to use it.
bool is_in_use(const DiskDirectory& directory);

struct DiskRemoved {
  std::uint64_t segments = 0, bytes = 0;
  bool has_others = false;  // other files are left, so the directory stays
};
// Removes the directory. EBUSY: a job uses the directory, and `force` is false.
base::Result<DiskRemoved> remove_disk(const DiskDirectory& directory, bool force);

}  // namespace cube::cache
