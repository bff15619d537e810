// Attributes that the kernel keeps of names of a mount (FUSE's attr_timeout, NFS's acregmin). A
// stat of a name that the kernel has yet to look up is the server's own word, and needs no
// AT_STATX_FORCE_SYNC, which would be a request more.
// Thread safety: all of it; async-signal-safe. No request is sent; an fd is taken for a moment.
#pragma once

namespace cube::cache {

// May the kernel answer a stat of this path, links not followed, by attributes that it keeps?
// False: the next look-up asks the server. True if it cannot be told (before Linux 5.12).
bool may_keep_attributes(const char* path);
// The same of one name in an open directory.
bool may_keep_attributes(int directory, const char* name);

// The flag for a stat of the path that is to follow, links not followed, so that it is the server's
// word.
int flag_to_ask_server(const char* path);

}  // namespace cube::cache
