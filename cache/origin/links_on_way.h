// Opens of a mount that tell whether a symbolic link lies on the way.
// Thread safety: all of it; async-signal-safe. Raw system calls only.
#pragma once

#include <string_view>

namespace cube::cache {

enum class LinksOnWay : unsigned char { unknown, none, some };

// An fd, or -errno of the plain open. The kernel is asked for a way without links first (openat2),
// which tells at no cost. A kernel or a sandbox that refuses openat2, while it lets a plain open
// through, is not asked again by this process.
long open_noting_links(const char* path, int flags, LinksOnWay& links);

// For links that are unknown: asks /proc whether this fd's file has just this absolute path.
bool has_path(int fd, std::string_view absolute_path);

}  // namespace cube::cache
