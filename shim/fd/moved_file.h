// Finds the file of an fd if the file's path no longer leads to it, because the file or a directory
// above it was renamed. Thread-safe and async-signal-safe.
#pragma once

#include "cache/record/record.h"

namespace cube::shim::moved_file {

// Opens the file that has the inode of the record. Looks for another name of the file in the
// directories of its path, and for the rest of its path below the siblings of these directories.
// Examines a bounded number of entries. Returns the fd or -errno; -ENOENT means that the file was
// not found. `flags` are those of open(2).
int open(const cache::Record& record, int flags);

}  // namespace cube::shim::moved_file
