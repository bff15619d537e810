// Numbers for directories that this process answers itself: each is an empty directory that no name
// leads to, so that calls that pass us by find nothing, and never the names of another. Thread
// safety: all of it; async-signal-safe.
#pragma once

namespace cube::shim::empty_directory {

// An fd, or -errno. It takes those flags of open(2) that a directory has.
long open(int flags);

}  // namespace cube::shim::empty_directory
