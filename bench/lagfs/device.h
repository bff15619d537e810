// Sets one bit of one message between libfuse and the kernel.
//
// Lookups in one directory run in parallel only if the reply to INIT contains FUSE_PARALLEL_DIROPS.
// libfuse before 3.17 offers FUSE_CAP_PARALLEL_DIROPS but forgets to send it (libfuse issue 879).
// The files of a directory would then be opened one by one, unlike on a network file system. So
// lagfs corrects this reply when it is sent.
//
// Thread safety: call install() before the workers start.
#pragma once

#include <fuse_lowlevel.h>

namespace cube::lagfs::device {

// `session` must be mounted. Returns 0 or an errno.
int install(fuse_session* session);

}  // namespace cube::lagfs::device
