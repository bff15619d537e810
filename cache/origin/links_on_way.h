// Opens a file of a mount, and tells whether its path contains a symbolic link. Thread-safe and
// async-signal-safe. Makes raw system calls only.
#pragma once

#include <string_view>

namespace cube::cache {

enum class LinksOnWay : unsigned char { unknown, none, some };

// Returns an fd, or the -errno of the plain open. The first try refuses links (openat2), so
// detecting links costs nothing. If the kernel or a sandbox refuses openat2 but a plain open
// succeeds, this process does not call openat2 again.
long open_noting_links(const char* path, int flags, LinksOnWay& links);

// For LinksOnWay::unknown: checks in /proc whether the fd's file has exactly this absolute path.
bool has_path(int fd, std::string_view absolute_path);

}  // namespace cube::cache
