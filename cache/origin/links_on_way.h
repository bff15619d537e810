// Opens a file of a mount, and tells whether its path contains a symbolic link. Thread-safe and
// async-signal-safe. Makes raw system calls only.
#pragma once

#include <string_view>

namespace cube::cache {

// `magic`: a magic link of procfs, such as /proc/self/cwd. It can lead each process to another
// file.
enum class LinksOnWay : unsigned char { unknown, none, some, magic };

// Returns an fd, or the -errno of a plain open. First tries an open that fails on links (openat2),
// so a path without links takes only one call. If the kernel or a sandbox refuses openat2 but a
// plain open succeeds, this process does not call openat2 again.
long open_noting_links(const char* path, int flags, LinksOnWay& links);

// Checks in /proc whether the fd's file has exactly this absolute path. Call it if the open has
// returned LinksOnWay::unknown.
bool has_path(int fd, std::string_view absolute_path);

}  // namespace cube::cache
