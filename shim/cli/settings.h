// The settings of config.def as options of a subcommand: CUBESHIM_RAM_DIR is --ram-dir,
// CUBESHIM_PREFIXES is --prefix (an option for each prefix). A setting that is not given as an
// option comes from the environment.
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
  // The heading of the group of settings in the help.
  static constexpr const char* k_group =
      "Settings (each is also a variable: --ram-dir is CUBESHIM_RAM_DIR)";
  // Selects settings. of_the_region: the region's directory and name. of_the_places: these and the
  // disk. but_for_profile: all except the profiler's.
  enum class Which { all, of_the_region, of_the_places, but_for_profile };
  void add_to(CLI::App& command, Which which);

  // Returns the settings that were given as options: variables and values.
  std::map<std::string, std::string> given() const;
  // `further` has default values for settings that are neither given as options nor set in the
  // environment.
  base::ParsedConfig parse(const std::map<std::string, std::string>& further = {}) const;

 private:
  std::vector<std::string> prefixes_;
  std::map<std::string, std::string> values_;
};

// Prints the errors in the settings. Returns true if there are any.
bool tell_errors(const base::ParsedConfig& parsed);

// Returns "--ram-dir" for "CUBESHIM_RAM_DIR".
std::string option_name(std::string_view variable);

// Opens the region of these settings without attaching to it. Returns null if there is no region.
// If the region is unusable, returns null and sets `why`.
cache::Region* look_at_region(const base::Config& config, std::string& why);

// Like look_at_region, but also reports the problem on stderr.
cache::Region* region_or_complaint(const base::Config& config);
// Returns a line such as "/dev/shm/...: 1.5 GiB of 2.0 GiB used by 12 files, 3 processes".
std::string region_line(cache::Region& region);

// Returns CUBESHIM_RAM in bytes. `memory` is the available memory.
std::uint64_t wanted_ram(const base::Config& config, std::uint64_t memory);
// Returns the size that a new region would have, limited by the room in its directory.
std::uint64_t expected_room(const base::Config& config);
// Returns a text such as "1.5 GiB".
std::string in_units(std::uint64_t bytes);
// Returns a text such as "1 file" or "2 files".
inline std::string counted(std::uint64_t n, std::string_view one, std::string_view more) {
  return std::to_string(n).append(" ").append(n == 1 ? one : more);
}

}  // namespace cube::cli
