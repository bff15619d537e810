// An O_PATH open of one of our own names (names.h) that is no directory gives a file or a link of
// the kernel's, which is like it. Thread safety: all of it; async-signal-safe.
#pragma once

#include <string_view>

#include "cache/metadata/metadata.h"

namespace cube::shim::path_only_fd {

// An fd, or -errno. A file is a copy in memory, a link one that no name leads to any more.
int open(const cache::Metadata& metadata, std::string_view key, int flags);

}  // namespace cube::shim::path_only_fd
