// Examines a path at the start of a program, without waiting for a server. The program may never
// use the path, so a file system whose server is gone must not delay the program before main.
// Thread-safe. Async-signal-safe, except look_at().
#pragma once

#include <cstdint>
#include <string>

namespace cube::shim::startup_directory {

// The local knowledge about a directory that the settings name.
struct DirectoryLook {
  // `on_a_server` and `behind_a_link`: only a server may know more.
  enum class Place : std::uint8_t { real, on_a_server, behind_a_link } place = Place::real;
  int error = 0;     // an errno if it does not exist; 0 also if only a server can tell
  std::string path;  // the real path if it is known, otherwise the path in the settings
};
// `path` must not contain "." or "..". Reads the table of mounts (50 us) only if the path is not on
// the root's file system, or if the kernel has not cached it. Not async-signal-safe, because it
// allocates.
DirectoryLook look_at(const std::string& path);
// Opens a directory if the kernel has cached each component of its path. Returns the fd or -errno;
// -EAGAIN means that only a server can answer.
long open_known(const char* path);

}  // namespace cube::shim::startup_directory
