// Reads the profiler's raw files (shim/profile/raw_format.h). A file may contain arbitrary bytes.
// Lines that cannot be parsed are counted and skipped; counts that are too large are limited.
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shim/profile/raw_format.h"

namespace cube::cli {

struct RawMap {
  std::uint64_t begin = 0, end = 0, offset = 0;
  std::string path;
};
struct RawCode {
  std::uint32_t line = 0;
  std::string function, file;
};
struct RawSite {
  std::size_t kind = 0;  // an index of k_kind_names
  std::string example;
  std::vector<std::uint64_t> native;
  std::vector<std::uint32_t> python;
  std::array<std::uint64_t, shim::profile::k_site_counts> counts{};
  std::array<std::uint64_t, shim::profile::k_latency_buckets> latency{};
  std::array<std::uint64_t, shim::profile::k_open_counts> opens{};
};
struct RawUse {
  std::uint64_t path_hash = 0;
  std::array<std::uint64_t, shim::profile::k_file_counts> counts{};
};
struct RawBin {
  std::size_t level = 0;
  std::uint64_t number = 0, busy_ns = 0, calls = 0;
};
// The section of a process, or of one program of a process (exec).
struct RawSection {
  std::uint64_t pid = 0, start_ns = 0, end_ns = 0, every = 1;
  bool observes = false, is_whole = false;
  std::vector<RawMap> maps;
  std::map<std::uint32_t, RawCode> codes;
  std::vector<RawSite> sites;
  std::vector<RawBin> bins;
  std::vector<RawUse> files;
  std::array<std::uint64_t, shim::profile::k_drop_counts> dropped{};
  std::array<std::uint64_t, shim::profile::k_cost_counts> cost{};
};
struct RawFile {
  std::vector<RawSection> sections;
  std::uint64_t bad_lines = 0;
  std::uint64_t other_versions = 0;  // sections that another version of the library wrote
};

RawFile parse_raw(std::string_view text);

}  // namespace cube::cli
