// Examines a path without waiting for a server. Meant for the start of a program, which may never
// touch the path: a mounted file system whose server is gone would delay it before main.
// Thread-safe and async-signal-safe except look_at.
#pragma once

#include <cstdint>
#include <string>

namespace cube::shim::startup_directory {

// A directory of the settings, as this machine knows it.
struct DirectoryLook {
  // If `real` is false, only a server may know more.
  enum class Place : std::uint8_t { real, on_a_server, behind_a_link } place = Place::real;
  int error = 0;     // an errno if there is no such directory; 0 also if only a server can tell
  std::string path;  // the real path if it is known, otherwise as it is spelled
};
// `path` has no "." and "..". Reads the table of mounts (50 us) only if the path is not on the
// root's file system, or is new to the kernel. Signal handlers must not call it: it allocates.
DirectoryLook look_at(const std::string& path);
// Opens a directory if the kernel has cached each component of its path. Returns -EAGAIN if a
// server would have to be asked.
long open_known(const char* path);

}  // namespace cube::shim::startup_directory
