#include "shim/cli/run/working_directory.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>

#include "cache/record/file_stat.h"
#include "prefetch/order/list_paths.h"

namespace cube::cli {

std::vector<std::string> names_of_working_directory() {
  std::vector<std::string> names;
  const char* const shell = std::getenv("PWD");
  const auto here = cache::stat_path(AT_FDCWD, ".", 0);
  const auto there =
      shell != nullptr && *shell == '/' ? cache::stat_path(AT_FDCWD, shell, 0) : here;
  if (shell != nullptr && *shell == '/' && here && there && here->same_file(*there))
    names.emplace_back(shell);
  char text[PATH_MAX];
  if (getcwd(text, sizeof text) != nullptr && (names.empty() || names.front() != text))
    names.emplace_back(text);
  return names;
}

std::vector<std::string> absolute_names(const std::string& text) {
  std::vector<std::string> names;
  const auto meant = cache::stat_path(AT_FDCWD, text.c_str(), 0);
  for (const auto& directory : names_of_working_directory()) {
    std::string path;
    if (prefetch::fold_path(directory, text, path) != prefetch::Folded::ok) continue;
    // If a ".." follows a symbolic link, the folded path leads elsewhere.
    const auto found = cache::stat_path(AT_FDCWD, path.c_str(), 0);
    if (meant && (!found || !meant->same_file(*found))) continue;
    if (names.empty() || names.front() != path) names.push_back(std::move(path));
  }
  return names;
}

}  // namespace cube::cli
