// The settings of config.def as options of a subcommand: CUBESHIM_RAM_DIR is --ram-dir,
// CUBESHIM_PREFIXES is --prefix (once for each). A setting that is not given comes from the
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
  // Their names in the help.
  static constexpr const char* k_group =
      "Settings (each is a variable, too: --ram-dir is CUBESHIM_RAM_DIR)";
  // Which directory and name; the disk, too; all but those of the profiler.
  enum class Which { all, of_the_region, of_the_places, but_for_profile };
  void add_to(CLI::App& command, Which which);

  // The settings that were given as options: variable and value.
  std::map<std::string, std::string> given() const;
  // `further` has the last word before the default.
  base::ParsedConfig parse(const std::map<std::string, std::string>& further = {}) const;

 private:
  std::vector<std::string> prefixes_;
  std::map<std::string, std::string> values_;
};

// "--ram-dir" of "CUBESHIM_RAM_DIR".
std::string option_name(std::string_view variable);

// The region that these settings name, without taking part in it. Null: there is none, or `why`
// says what is wrong.
cache::Region* look_at_region(const base::Config& config, std::string& why);

// The same; where there is none, stderr is told why.
cache::Region* region_or_complaint(const base::Config& config);
// "/dev/shm/...: 1.5 GiB of 2.0 GiB used by 12 files, 3 processes"
std::string region_line(cache::Region& region);

// Bytes that CUBESHIM_RAM comes to, where so much memory is available.
std::uint64_t wanted_ram(const base::Config& config, std::uint64_t memory);
// Bytes that a new region would have, as far as its directory has room.
std::uint64_t expected_room(const base::Config& config);
// "1.5 GiB".
std::string in_units(std::uint64_t bytes);

}  // namespace cube::cli
