// Looks at a path without waiting for a server: at the start of a program, which may never touch the path. A mounted file system
// whose server is gone would hold it up before main.
// Thread safety: all of it; async-signal-safe.
#pragma once

namespace cube::shim::near_look {

// An O_PATH fd of a path without "." and "..", which is opened if all file systems on its way are this machine's own. -EREMOTE:
// it lies on one that a server holds. -EXDEV: a link leads to another file system, whichever.
long open_local(const char* path);
// The same of a directory, if the kernel knows each part of the path by now. -EAGAIN: a server would have to be asked.
long open_known(const char* path);

}  // namespace cube::shim::near_look
