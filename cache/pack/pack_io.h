// Functions that read and write whole ranges of a file, and find its directory. Thread-safe.
#pragma once

#include <string>

#include "cache/base/file_io.h"

namespace cube::cache {

using base::read_at;
using base::write_at;

// The path of the directory that contains a file.
inline std::string directory_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

}  // namespace cube::cache
