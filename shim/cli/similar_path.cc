#include "shim/cli/similar_path.h"

#include <dirent.h>
#include <fmt/core.h>

#include <cerrno>
#include <vector>

#include "cache/base/nearest_word.h"

namespace cube::cli {

std::string path_hint(std::string_view path, int error) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::size_t name = path.rfind('/') + 1;  // 0 if there is no slash
  const std::string directory(path.substr(0, name));
  DIR* const entries = error == ENOENT ? opendir(name == 0 ? "." : directory.c_str()) : nullptr;
  if (entries == nullptr) return {};
  constexpr std::size_t k_most_entries = 10'000;
  std::vector<std::string> names;
  while (const dirent* const entry = names.size() < k_most_entries ? readdir(entries) : nullptr)
    names.emplace_back(entry->d_name);
  closedir(entries);
  const std::string_view nearest =
      base::nearest_word(path.substr(name), {names.begin(), names.end()});
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}{}?", directory, nearest);
}

}  // namespace cube::cli
