// An O_PATH open of a name in a pack that is no directory gives a file or a link of the kernel's own, which is like the packed
// one. Thread safety: all of it; async-signal-safe.
#pragma once

#include <string_view>

#include "cache/pack/pack_mount.h"

namespace cube::shim::packed_name {

// An fd, or -errno. A file is a copy in memory, a link one that no name leads to any more.
int open(const cache::PackMount& pack, std::string_view path, int flags);

}  // namespace cube::shim::packed_name
