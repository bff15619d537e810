// Finds an open file whose path no longer leads to it, because the file or a directory above it was
// renamed. Thread-safe and async-signal-safe.
#pragma once

#include "cache/record/record.h"

namespace cube::shim::moved_file {

// Opens the file with the inode of the record: by another name in a directory of its path, or by
// the rest of its path below a directory beside one of those. Examines a bounded number of entries.
// Returns the fd or -errno, -ENOENT if it is not found. `flags` are those of open(2).
int open(const cache::Record& record, int flags);

}  // namespace cube::shim::moved_file
