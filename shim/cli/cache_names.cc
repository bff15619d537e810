#include "shim/cli/cache_names.h"

#include <dirent.h>

#include <algorithm>
#include <string_view>

#include "cache/base/settings/config.h"
#include "cache/region/region.h"

namespace cube::cli {
namespace {

bool can_be_a_name(const std::string& name) {
  if (name.ends_with(cache::Region::socket_path_of(""))) return false;
  const auto lookup = [&](const char* variable) -> const char* {
    return std::string_view(variable) == "CUBESHIM_NAME" ? name.c_str() : nullptr;
  };
  return !name.empty() && base::parse_config(lookup, base::IfWrong::end).errors.empty();
}

}  // namespace

std::vector<std::string> names_of_caches(const std::string& directory) {
  std::vector<std::string> names;
  DIR* const stream = opendir(directory.c_str());
  if (stream == nullptr) return names;
  const std::string path = cache::Region::path_of("", "");
  const std::string head = path.substr(path.rfind('/') + 1);
  while (const dirent* const entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name.starts_with(head) && can_be_a_name(name.substr(head.size())))
      names.push_back(name.substr(head.size()));
  }
  closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cube::cli
