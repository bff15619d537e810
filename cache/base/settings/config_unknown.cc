// Finds environment variables that look like settings but are not.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cache/base/nearest_word.h"
#include "cache/base/process/job_variable.h"
#include "cache/base/settings/config.h"

namespace cube::base {
namespace {

bool is_known(std::string_view variable) {
  return variable == k_job_variable || variable == k_told_variable ||
         std::ranges::find(config_rows(), variable, &ConfigRow::variable) != config_rows().end();
}

constexpr std::string_view k_prefix = "CUBESHIM_";

// The setting that the user may have meant; empty: none is similar.
std::string nearest_setting(std::string_view variable) {
  std::vector<std::string_view> names;
  for (const auto& row : config_rows()) names.push_back(row.variable.substr(k_prefix.size()));
  const std::string_view nearest = nearest_word(variable.substr(k_prefix.size()), names);
  return nearest.empty() ? std::string() : fmt::format("{}{}", k_prefix, nearest);
}

}  // namespace

std::vector<std::string> unknown_variables(const char* const* environment) {
  std::vector<std::string> lines;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry(*environment);
    if (!entry.starts_with(k_prefix)) continue;
    const std::string_view name = entry.substr(0, entry.find('='));
    if (is_known(name)) continue;
    std::string hint;
    if (const std::string nearest = nearest_setting(name); !nearest.empty()) {
      hint = fmt::format("did you mean {}?", nearest);
    } else {
      hint = "those are CUBESHIM_ and one of:";
      for (const auto& row : config_rows()) hint += fmt::format(" {}", row.variable.substr(9));
    }
    lines.push_back(fmt::format("{} is not a setting of this version; {}", for_a_line(name), hint));
  }
  return lines;
}

}  // namespace cube::base
