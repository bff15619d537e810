// Tells whether the kernel may have cached the attributes of a path on a mount (FUSE's
// attr_timeout, NFS's acregmin). If it has not, the server must answer the next stat in any case,
// and AT_STATX_FORCE_SYNC would only cost one more request. Thread-safe and async-signal-safe.
// Sends no request. Briefly uses an fd.
#pragma once

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

}  // namespace cube::cache
