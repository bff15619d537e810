// Opens a file of a mount and tells whether its path has a symbolic link. Thread-safe and
// async-signal-safe. Raw system calls only.
#pragma once

#include <string_view>

namespace cube::cache {

enum class LinksOnWay : unsigned char { unknown, none, some };

// An fd, or -errno of the plain open. The first try refuses links (openat2), so detecting them
// costs nothing. If openat2 is refused by the kernel or a sandbox while a plain open succeeds, this
// process does not try it again.
long open_noting_links(const char* path, int flags, LinksOnWay& links);

// For LinksOnWay::unknown: checks in /proc whether the fd's file has exactly this absolute path.
bool has_path(int fd, std::string_view absolute_path);

}  // namespace cube::cache
