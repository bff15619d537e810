// Looks at a path without waiting for a server: at the start of a program, which may never touch
// the path. A mounted file system whose server is gone would hold it up before main. Thread safety:
// all of it; async-signal-safe but for look_at.
#pragma once

#include <cstdint>
#include <string>

namespace cube::shim::near_look {

// A directory of the settings, as this machine knows it.
struct DirectoryLook {
  // Other than real: a server may have to be asked.
  enum class Place : std::uint8_t { real, on_a_server, behind_a_link } place = Place::real;
  int error = 0;  // of a path that has nothing, or no directory; 0 also where a server would tell
  std::string path;  // the real one, if it is known; else as it is spelled
};
// `path` is without "." and "..". Reads the table of mounts (50 us) only if the path is not on the
// root's file system, or is new to the kernel. Not for signal handlers: it allocates.
DirectoryLook look_at(const std::string& path);
// The same of a directory, if the kernel knows each part of the path by now. -EAGAIN: a server
// would have to be asked.
long open_known(const char* path);

}  // namespace cube::shim::near_look
