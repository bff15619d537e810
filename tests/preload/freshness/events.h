// Events that can happen to a file, and the results that a reader gets. The driver, which acts as
// another node, and the programs under the library share this code.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cube::freshness {

struct Event {
  const char* name;
  // The path that is read, relative to the data directory.
  const char* subject;
  void (*prepare)(const std::string& data);
  void (*happen)(const std::string& data);
};

const std::vector<Event>& events();
const Event& event_named(const std::string& name);

// Returns in one line everything that can be read of a path: bytes and stat, the error, or the
// names in a directory.
std::string see_path(const std::string& path);
// Returns the size and bytes of an open file.
std::string see_fd(int fd);

}  // namespace cube::freshness
