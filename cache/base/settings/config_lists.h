// Parses the settings that are lists: prefixes, packs, buckets, servers. Thread safety: pure
// functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "cache/base/settings/config.h"

namespace cube::base {

// One function for each type in config.def that is a list. False: the text is not a valid value of
// the type.
struct ParseList {
  static bool Prefixes(std::string_view text, config_types::Prefixes& value);
  static bool Origins(std::string_view text, config_types::Origins& value);
  static bool OriginIds(std::string_view text, config_types::OriginIds& value);
  static bool Buckets(std::string_view text, config_types::Buckets& value);
  static bool Servers(std::string_view text, config_types::Servers& value);
};

// Drops each prefix that lies within another prefix of the list.
void keep_outermost(config_types::Prefixes& value);

// False: the text is not a number, or something follows the number.
bool parse_number(std::string_view text, std::uint64_t& value);
// Whether the text consists of letters, digits, '.', '-' and '_'.
bool is_name(std::string_view text);

}  // namespace cube::base
