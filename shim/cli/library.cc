#include "shim/cli/library.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace cube::cli {

std::string own_folder() {
  char self[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
  const std::string path(self, n > 0 ? static_cast<std::size_t>(n) : 0);
  return path.substr(0, path.rfind('/') + 1);
}

std::string first_found(std::initializer_list<std::string> places) {
  for (const std::string& place : places) {
    char real[PATH_MAX];
    if (realpath(place.c_str(), real) != nullptr) return real;
  }
  return {};
}

std::string find_library() {
  constexpr const char* k_name = "libcubeshim.so";
  const std::string prefix = own_folder() + "../";
  return first_found({own_folder() + k_name, prefix + "lib/" CUBESHIM_MACHINE "-linux-gnu/" + k_name, prefix + "lib64/" + k_name,
                      prefix + "lib/" + k_name});
}

void put_in_front(const char* variable, const std::string& value) {
  const char* const others = std::getenv(variable);
  setenv(variable, others != nullptr && *others != '\0' ? (value + ":" + others).c_str() : value.c_str(), 1);
}

}  // namespace cube::cli
