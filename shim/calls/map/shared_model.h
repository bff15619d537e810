// Models that several processes of a node map, as the ranks of a job do. Each open makes FUSE drop
// the file's pages in the kernel, so a process that has mapped the origin's file must read these
// pages again. Therefore, if another process runs the same command, or has mapped a file that this
// process has mapped, too, the bytes of a model are fetched into the region before the model is
// mapped. The mapping then shows only the region. Thread-safe and async-signal-safe.
#pragma once

#include "cache/fill/fd_epoch.h"
#include "shim/fd/kept_file.h"

namespace cube::shim::shared_model {

// Fetches the absent bytes of a range that the program is about to map, if the file has a format
// that programs read from end to end (weights_format.h), and if the range fits into memory. The
// threads of the block reader fetch in parallel; the caller also reads, and waits for them. Begins
// no read after a second, or earlier if the rest would not arrive within that second; also stops
// after an error. The kernel must then make the mapping. `fd`: must be constructed before `file`.
// Returns whether it has fetched or waited, so that the file may have changed in the meantime.
bool bring(cache::FileCache& cache, const KeptFile& file, const cache::FdEpoch& fd,
           const cache::LargeFile::Range& mapped);

}  // namespace cube::shim::shared_model
