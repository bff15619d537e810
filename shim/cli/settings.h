// The settings of config.def as options of a subcommand: CUBESHIM_RAM_DIR is --ram-dir,
// CUBESHIM_PREFIXES is --prefix (once for each). A setting without an option comes from the
// environment.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/settings/config.h"
#include "cache/region/region.h"

namespace CLI {  // NOLINT(readability-identifier-naming): as the library has it
class App;
}

namespace cube::cli {

class Settings {
 public:
  // The heading of their group in the help.
  static constexpr const char* k_group =
      "Settings (each is also a variable: --ram-dir is CUBESHIM_RAM_DIR)";
  // Selects settings: the region's directory and name; those and the disk; all except those of the
  // profiler.
  enum class Which { all, of_the_region, of_the_places, but_for_profile };
  void add_to(CLI::App& command, Which which);

  // The settings that were given as options: variable and value.
  std::map<std::string, std::string> given() const;
  // `further` has the values of settings that are neither given as an option nor set in the
  // environment.
  base::ParsedConfig parse(const std::map<std::string, std::string>& further = {}) const;

 private:
  std::vector<std::string> prefixes_;
  std::map<std::string, std::string> values_;
};

// Prints what is wrong with the settings. Returns true if anything is wrong.
bool tell_errors(const base::ParsedConfig& parsed);

// "--ram-dir" for "CUBESHIM_RAM_DIR".
std::string option_name(std::string_view variable);

// Opens the region of these settings without attaching to it. Returns null if there is none, or if
// it is unusable: `why` then gives the reason.
cache::Region* look_at_region(const base::Config& config, std::string& why);

// Like look_at_region, but reports on stderr if there is none.
cache::Region* region_or_complaint(const base::Config& config);
// "/dev/shm/...: 1.5 GiB of 2.0 GiB used by 12 files, 3 processes"
std::string region_line(cache::Region& region);

// Returns CUBESHIM_RAM in bytes, if this much memory is available.
std::uint64_t wanted_ram(const base::Config& config, std::uint64_t memory);
// The size that a new region would have, limited by the room of its directory.
std::uint64_t expected_room(const base::Config& config);
// "1.5 GiB".
std::string in_units(std::uint64_t bytes);
// "1 file", "2 files".
inline std::string counted(std::uint64_t n, std::string_view one, std::string_view more) {
  return std::to_string(n).append(" ").append(n == 1 ? one : more);
}

}  // namespace cube::cli
