// Tells whether the kernel keeps attributes of a path on a mount (FUSE's attr_timeout, NFS's
// acregmin). If the kernel must still look up a path, a stat of the path comes from the server
// anyway. AT_STATX_FORCE_SYNC is then unnecessary, and would cost one more request. Thread-safe and
// async-signal-safe. Sends no request. Briefly uses an fd.
#pragma once

namespace cube::cache {

// Whether the kernel may answer a stat of this path (without following a final link) from
// attributes that it keeps. False: the next lookup asks the server. Also true if the answer is not
// known (before Linux 5.12).
bool may_keep_attributes(const char* path);
// Like may_keep_attributes(path), but for a name in an open directory.
bool may_keep_attributes(int directory, const char* name);

// The flag that makes the server answer the next stat of this path (without following a final
// link).
int flag_to_ask_server(const char* path);

}  // namespace cube::cache
