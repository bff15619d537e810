// Fds for directories that this process answers itself: each is an empty directory that no path
// leads to, so that calls that bypass us find nothing, and never the entries of another directory.
// Thread safety: all of it; async-signal-safe.
#pragma once

namespace cube::shim::empty_directory {

// Returns an fd, or -errno. Takes the flags of open(2) that apply to a directory.
long open(int flags);

}  // namespace cube::shim::empty_directory
