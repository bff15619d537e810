// Checks whether a pack is undamaged, and whether it agrees with a directory. The check reads the
// whole pack: the index, each record, each byte of data. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/base/unique_fd.h"
#include "cache/pack/pack_reader.h"
#include "shim/cli/warmup/progress.h"

namespace cube::cli {

struct PackFindings {
  std::uint64_t files = 0, entries = 0, bytes = 0;
  std::uint64_t problems = 0;
  std::vector<std::string> first;  // the first problems, one line each
  bool was_interrupted = false;

  void add(std::string line) {
    constexpr std::size_t k_shown = 20;
    if (problems++ < k_shown) first.push_back(std::move(line));
  }
};

// `against` is a directory to compare with, or an empty fd.
PackFindings check_pack(const cache::PackReader& pack, base::UniqueFd against, Progress& progress);

}  // namespace cube::cli
