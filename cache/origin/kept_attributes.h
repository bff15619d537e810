// Tells whether the kernel keeps attributes of a path on a mount (FUSE's attr_timeout, NFS's
// acregmin). A stat of a path that the kernel has yet to look up comes from the server anyway, and
// needs no AT_STATX_FORCE_SYNC, which would cost one more request. Thread-safe and
// async-signal-safe. Sends no request; uses an fd for a moment.
#pragma once

namespace cube::cache {

// Whether the kernel may answer a stat of this path, links not followed, from attributes that it
// keeps. False: the next lookup asks the server. True if that is not known (before Linux 5.12).
bool may_keep_attributes(const char* path);
// Like the above, for one name in an open directory.
bool may_keep_attributes(int directory, const char* name);

// The flag that makes the next stat of this path, links not followed, come from the server.
int flag_to_ask_server(const char* path);

}  // namespace cube::cache
