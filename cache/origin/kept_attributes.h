// Tells whether the kernel may have cached the attributes of a path on a mount (FUSE's
// attr_timeout, NFS's acregmin). If it has not, the server must answer the next stat in any case,
// and AT_STATX_FORCE_SYNC would only cost one more request. Also tells whether the kernel has
// cached the whole path without a link, and drops the pages of FUSE files. Thread-safe and
// async-signal-safe. Briefly uses an fd. Sends no request, except for one fstatfs for each device.
#pragma once

#include <string_view>

#include "cache/record/file_stat.h"

namespace cube::cache {

// Whether the kernel may answer a stat of this path (without following a final link) from cached
// attributes. False: the next lookup asks the server. Always true before Linux 5.12, where this
// cannot be found out.
bool may_keep_attributes(const char* path);
// Like may_keep_attributes(path), but for a name in an open directory.
bool may_keep_attributes(int directory, const char* name);

// The flag to pass to the next stat of this path (without following a final link) so that the
// server answers it; 0 if no flag is needed.
int flag_to_ask_server(const char* path);

// Drops the kernel's pages of a file on FUSE, whose stat the server has just sent, so that the next
// read gets the bytes of this stat. By itself, the kernel drops the pages of a FUSE file only when
// the size or the mtime has changed. So with FOPEN_KEEP_CACHE, it would return old bytes after a
// write by another node that has set the mtime back.
void drop_pages_of_fuse(int fd, const FileStat& stat);

// Whether the kernel can resolve this absolute path from its cache, without a symbolic link. False:
// the path contains a link, or the cache lacks a part of it. Always false before Linux 5.12.
bool is_kept_without_links(std::string_view path);

}  // namespace cube::cache
