// Reads and writes whole ranges of a pack, and finds its directory. Thread-safe.
#pragma once

#include <string>

#include "cache/base/file_io.h"

namespace cube::cache {

using base::read_at;
using base::write_at;

// The directory of a file, as a path that can be opened.
inline std::string directory_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

}  // namespace cube::cache
