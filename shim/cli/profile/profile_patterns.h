// Finds slow access patterns in a profile. Each pattern has a cost and advice. Thread safety: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "shim/cli/profile/profile_sites.h"

namespace cube::cli {

struct Pattern {
  std::string name;  // "seek storm"
  std::string site;  // text_of_site; empty for a pattern of the whole job
  std::string seen;  // "120 of 120 files, 30 reads and 9 seeks each"
  std::string advice;
  std::string example;      // a path
  std::uint64_t count = 0;  // files or calls
  std::uint64_t cost_ns = 0;
  bool is_minor = false;  // less than a hundredth of the wall time
};

// Returns the patterns, the most expensive first.
std::vector<Pattern> find_patterns(const Profile& profile);

}  // namespace cube::cli
