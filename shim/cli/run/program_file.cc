#include "shim/cli/run/program_file.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cache/base/sys.h"

namespace cube::cli {
namespace {

// Returns the words of a script's first line, such as "#!/usr/bin/env python3".
std::vector<std::string> interpreter_of_script(const std::string& path) {
  char head[256];
  const long n = base::sys::read_small_file(path.c_str(), head, sizeof head);
  const std::string_view text(head, base::sys::failed(n) ? 0 : static_cast<std::size_t>(n));
  if (!text.starts_with("#!")) return {};
  return split_words(text.substr(2, text.find('\n') - std::min<std::size_t>(2, text.find('\n'))),
                     " \t\r");
}

}  // namespace

std::vector<std::string> split_words(std::string_view text, std::string_view separators) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
    if (end > at) words.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

std::string find_program(const std::string& name) {
  const auto is_program = [](const std::string& path) {
    struct ::stat st {};
    return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* const path = std::getenv("PATH");
  for (const auto& directory : split_words(path != nullptr ? path : "/bin:/usr/bin", ":")) {
    std::string candidate = fmt::format("{}/{}", directory, name);
    if (is_program(candidate)) return candidate;
  }
  return {};
}

std::string executable_of(const std::string& name) {
  std::string path = find_program(name);
  for (int depth = 0; depth < 4 && !path.empty(); ++depth) {
    const auto words = interpreter_of_script(path);
    if (words.empty()) return path;
    const bool is_env = words.front().ends_with("/env");
    const auto program = std::find_if(words.begin() + 1, words.end(),
                                      [](const auto& word) { return !word.starts_with('-'); });
    if (is_env && program == words.end()) return {};
    path = find_program(is_env ? *program : words.front());
  }
  return path;
}

}  // namespace cube::cli
