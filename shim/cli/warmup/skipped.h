// The files that a warm-up has skipped, by reason. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "prefetch/work/prefetcher.h"
#include "shim/cli/warmup/named_paths.h"

namespace cube::cli {

struct SkippedRow {
  std::string reason;  // "missing"
  std::uint64_t count = 0;
  std::string first;                     // the first file, with its line of the list and its error
  bool is_wanted = false;                // the list itself excludes the files
  std::uint64_t bytes = 0, missing = 0;  // of files without room, if known
};

// Adds the row, or merges it into the row of the same reason.
void add_row(std::vector<SkippedRow>& rows, SkippedRow row);

class Skipped {
 public:
  // Notes a file that the cache has refused. A directory does not count, because its files follow.
  void add(NamedPaths& paths, const prefetch::RefusedFile& refused);
  void add(const char* reason, const std::string& path) {
    add_row(own_, {.reason = reason, .count = 1, .first = path});
  }
  // Returns all rows, including those for files that the lists have skipped.
  std::vector<SkippedRow> rows(const NamedPaths& paths) const;

 private:
  void add_own(const char* reason, const prefetch::RefusedFile& refused);
  std::vector<SkippedRow> own_;
};

}  // namespace cube::cli
