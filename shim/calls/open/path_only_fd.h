// O_PATH opens of files and links among our paths (name/unmounted_paths.h). The program gets an fd
// of a similar file or link that the kernel has. Thread-safe and async-signal-safe.
#pragma once

#include <string_view>

#include "cache/metadata/metadata.h"

namespace cube::shim::path_only_fd {

// Returns an fd or -errno. For a file, the fd refers to a copy in memory. For a link, it refers to
// a real link whose name was removed.
int open(const cache::Metadata& metadata, std::string_view key, int flags);

}  // namespace cube::shim::path_only_fd
