// Answers an O_PATH open of a file or a link among our paths (name/unmounted_paths.h) with a
// similar file or link of the kernel. Thread-safe and async-signal-safe.
#pragma once

#include <string_view>

#include "cache/metadata/metadata.h"

namespace cube::shim::path_only_fd {

// Returns an fd, or -errno. A file is opened as a copy in memory, a link as a real one whose name
// was removed.
int open(const cache::Metadata& metadata, std::string_view key, int flags);

}  // namespace cube::shim::path_only_fd
