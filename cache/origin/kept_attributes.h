// Tells whether the kernel may have cached the attributes of a path on a mount (FUSE's
// attr_timeout, NFS's acregmin). If it has not, the server must answer the next stat in any case,
// and AT_STATX_FORCE_SYNC would only cost one more request. Also tells whether the kernel has
// cached the whole path without a link. Thread-safe and async-signal-safe. Sends no request.
// Briefly uses an fd.
#pragma once

#include <string_view>

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

// Whether the kernel has just now found this absolute path, and met no symbolic link. False: the
// path contains a link, or the kernel does not know.
bool is_kept_without_links(std::string_view path);

}  // namespace cube::cache
