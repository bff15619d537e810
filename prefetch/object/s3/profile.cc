#include "prefetch/object/s3/profile.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "cache/base/unique_fd.h"
#include "prefetch/object/s3/uri.h"

namespace cube::s3 {
namespace {

constexpr std::size_t k_most_bytes = 1 << 20;

}  // namespace

std::string read_small_file(const std::string& path) {
  std::string text;
  const auto fd = base::open_fd(path.c_str(), O_RDONLY);
  if (!fd) return text;
  char part[4096];
  long n;
  while (text.size() < k_most_bytes && (n = base::sys::read(fd->get(), part, sizeof part)) > 0)
    text.append(part, static_cast<std::size_t>(n));
  return text;
}

Environment::Environment(Lookup lookup) : lookup_(std::move(lookup)) {
  profile_ = variable("AWS_PROFILE");
  if (profile_.empty()) profile_ = variable("AWS_DEFAULT_PROFILE");
  if (profile_.empty()) profile_ = "default";
  const auto path_of = [&](const char* name, const char* below_home) {
    const std::string given = variable(name);
    return given.empty() ? variable("HOME") + below_home : given;
  };
  // The credentials file is read last, because its value takes precedence if both files have a key.
  read(path_of("AWS_CONFIG_FILE", "/.aws/config"), /*is_config=*/true);
  read(path_of("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"), /*is_config=*/false);
}

std::string Environment::variable(const char* name) const {
  const char* const value = lookup_(name);
  return value == nullptr ? "" : value;
}

bool Environment::is_on(const char* name) const {
  const std::string value = lower_case(variable(name));
  return value == "1" || value == "true";
}

std::string Environment::of_section(const std::string& section, const std::string& key) const {
  const auto found = sections_.find(section);
  if (found == sections_.end()) return {};
  const auto row = found->second.find(key);
  return row == found->second.end() ? "" : row->second;
}

std::string Environment::of_profile(const std::string& key) const {
  return of_section(profile_, key);
}

void Environment::read(const std::string& path, bool is_config) {
  const std::string text = read_small_file(path);
  std::string section, parent;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::string_view words = trimmed(line);
    if (words.empty() || words.starts_with('#') || words.starts_with(';')) continue;
    if (words.starts_with('[')) {
      std::string_view name = trimmed(words.substr(1, words.find(']') - 1));
      constexpr std::string_view k_profile = "profile ";
      if (is_config && name.starts_with(k_profile)) name = trimmed(name.substr(k_profile.size()));
      section = name;
      parent.clear();
      continue;
    }
    const std::size_t equals = words.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string key(trimmed(words.substr(0, equals)));
    std::string_view value = trimmed(words.substr(equals + 1));
    value = trimmed(value.substr(0, std::min(value.find(" #"), value.find(" ;"))));
    const bool is_nested = line.front() == ' ' || line.front() == '\t';
    if (!is_nested) parent = value.empty() ? key : "";
    std::string name = is_nested && !parent.empty() ? parent : "";
    if (!name.empty()) name += '.';
    name += key;
    sections_[section][name] = value;
  }
}

}  // namespace cube::s3
