#include "shim/cli/settings.h"

#include "cache/base/error_text.h"
#include "cache/base/memory/memory_limits.h"
#include "cache/region/large/chunks.h"
#include "cache/report/report_text.h"
#include "shim/cli/complaint.h"
#include "shim/cli/run/working_directory.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>

namespace cube::cli {
namespace {

constexpr std::string_view k_variable_head = "CUBESHIM_";
constexpr std::string_view k_prefixes = "CUBESHIM_PREFIXES";

// Returns the short form of a setting's values for the help and the completions, such as
// "text|json" for "text or json".
std::string value_name(std::string_view takes) {
  std::string words;
  bool is_choice = takes.find(" or ") != std::string_view::npos;
  for (std::string_view rest = takes; is_choice && !rest.empty();) {
    const std::size_t comma = rest.find(", "), last = rest.find(" or ");
    const std::size_t end = std::min({comma, last, rest.size()});
    words += (words.empty() ? "" : "|") + std::string(rest.substr(0, end));
    is_choice = rest.substr(0, end).find(' ') == std::string_view::npos;
    rest.remove_prefix(std::min(rest.size(), end + (end == comma ? 2 : 4)));
  }
  if (is_choice) return words;
  if (takes.find("director") != std::string_view::npos) return "DIRECTORY";
  return takes.find("path") != std::string_view::npos ? "PATH" : "VALUE";
}

bool is_of(Settings::Which which, std::string_view variable) {
  const bool is_of_profile =
      variable.starts_with("CUBESHIM_PROFILE") || variable == "CUBESHIM_OBSERVE";
  if (which == Settings::Which::but_for_profile) return !is_of_profile;
  if (which == Settings::Which::all || variable == "CUBESHIM_NAME" ||
      variable == "CUBESHIM_RAM_DIR")
    return true;
  return which == Settings::Which::of_the_places && variable == "CUBESHIM_DISK_DIR";
}

bool takes_directory(std::string_view variable) {
  const auto& rows = base::config_rows();
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.variable == variable; });
  return row != rows.end() && value_name(row->takes) == "DIRECTORY";
}

// True for a relative path, and for a path with "..".
bool needs_a_base(std::string_view path) {
  return !path.starts_with('/') || path.find("/../") != std::string_view::npos ||
         path.ends_with("/..");
}

// Expands each path of a list such as "a:/b" to all names that the job may use for it.
std::string absolute_prefixes(std::string_view given) {
  std::string all;
  for (std::size_t at = 0; at <= given.size();) {
    const std::size_t end = std::min(given.find(':', at), given.size());
    const std::string one(given.substr(at, end - at));
    at = end + 1;
    if (one.empty()) continue;
    auto names = needs_a_base(one) ? absolute_names(one) : std::vector<std::string>{one};
    if (names.empty()) names.push_back(one);
    for (const auto& name : names) all += (all.empty() ? "" : ":") + name;
  }
  return all;
}

}  // namespace

std::string option_name(std::string_view variable) {
  if (variable == k_prefixes) return "--prefix";
  std::string name = "--";
  for (const char c : variable.substr(k_variable_head.size()))
    name += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

void Settings::add_to(CLI::App& command, Which which) {
  for (const auto& row : base::config_rows()) {
    if (!is_of(which, row.variable)) continue;
    const auto help = fmt::format(
        "{} Takes {}{}.", row.help, row.takes,
        row.default_text.empty() ? "" : fmt::format("; the default is {}", row.default_text));
    if (row.variable == k_prefixes) {
      command.add_option("-p,--prefix", prefixes_, help)
          ->type_name("DIRECTORY")
          ->allow_extra_args(false)
          ->group(k_group);
      continue;
    }
    command.add_option(option_name(row.variable), values_[std::string(row.variable)], help)
        ->type_name(value_name(row.takes))
        ->group(k_group);
  }
}

std::map<std::string, std::string> Settings::given() const {
  std::map<std::string, std::string> result;
  for (const auto& [variable, value] : values_) {
    if (value.empty()) continue;
    // These settings need only one name. The last name is based on the kernel's name of the working
    // directory.
    const auto names = takes_directory(variable) && needs_a_base(value)
                           ? absolute_names(value)
                           : std::vector<std::string>{};
    result[variable] = names.empty() ? value : names.back();
  }
  std::string all;
  for (const auto& prefix : prefixes_) all += (all.empty() ? "" : ":") + absolute_prefixes(prefix);
  if (!all.empty()) result[std::string(k_prefixes)] = all;
  return result;
}

base::ParsedConfig Settings::parse(const std::map<std::string, std::string>& further) const {
  const auto options = given();
  const auto lookup = [&](const char* variable) -> const char* {
    const auto found = options.find(variable);
    if (found != options.end()) return found->second.c_str();
    const char* const own = std::getenv(variable);
    if (own != nullptr && *own != '\0') return own;
    const auto other = further.find(variable);
    return other != further.end() ? other->second.c_str() : nullptr;
  };
  auto parsed = base::parse_config(lookup, base::IfWrong::end);
  // If the user gave the option, the line names the option instead of the variable.
  for (auto& line : parsed.errors) {
    const std::string variable = line.substr(0, line.find('='));
    if (options.contains(variable))
      line.replace(0, variable.size() + 1, option_name(variable) + " ");
  }
  return parsed;
}

bool tell_errors(const base::ParsedConfig& parsed) {
  for (const auto& error : parsed.errors) complain(2, error);
  return !parsed.errors.empty();
}

cache::Region* look_at_region(const base::Config& config, std::string& why) {
  cache::RegionOptions options;
  options.directory = config.ram_dir;
  options.name = config.name;
  const auto region = cache::Region::look(options, why);
  if (region) return *region;
  if (region.error().value != ENOENT && why.empty())
    why = base::text_of_error(region.error().value);
  return nullptr;
}

cache::Region* region_or_complaint(const base::Config& config) {
  std::string why;
  cache::Region* const region = look_at_region(config, why);
  if (region != nullptr) return region;
  if (why.empty())
    why = fmt::format(
        "there is no cache named {} in {}: no job of this user has opened a file under a prefix",
        config.name, config.ram_dir);
  tell("cubeshim: {}\n", why);
  return nullptr;
}

std::string region_line(cache::Region& region) {
  const auto& header = region.header();
  const std::uint64_t capacity =
      std::uint64_t{region.layout().segment_bytes} * region.layout().segment_count;
  const std::uint64_t large = cache::figures_of_chunks(region).bytes;
  return fmt::format("{}: {} of {} used by {}{}, {}", region.path(),
                     in_units(header.used_bytes.load()), in_units(capacity),
                     counted(header.records.load(), "record", "records"),
                     large == 0 ? "" : fmt::format(" and {} of large files", in_units(large)),
                     counted(region.count_processes(), "process", "processes"));
}

std::uint64_t wanted_ram(const base::Config& config, std::uint64_t memory) {
  if (!config.ram.is_percent) return config.ram.value;
  return memory == UINT64_MAX ? 1ULL << 30 : memory / 100 * config.ram.value;
}

std::uint64_t expected_room(const base::Config& config) {
  const std::uint64_t memory = base::available_memory();
  const auto room = base::shared_room(config.ram_dir.c_str());
  if (!room) return 0;
  return std::min(
      {wanted_ram(config, memory), room->most_for_region(config.ram.is_percent), memory});
}

std::string in_units(std::uint64_t bytes) {
  cache::ReportText text;
  cache::append_bytes(text, bytes);
  return std::string(text.view());
}

}  // namespace cube::cli
