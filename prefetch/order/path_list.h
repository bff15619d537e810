// A reader of CUBESHIM_PREFETCH_LIST, which names the files that will be needed. It reads the list
// only as fast as the entries are used, so 100 million lines need no more memory than ten. An entry
// is a line, or a NUL-terminated name (list_entries.h).
//
//   /data/train/a.jpg        a file
//   /data/train              a directory: all files below it (dir_walk.h); a path that ends in '/'
//                            can be nothing else
//   train/a.jpg              relative: see below
//   - /data/train/bad        leaves out this path and all below it, from this line on;
//                            "-/data/train/bad" is the same
//   # text                   a comment; empty lines are skipped too
//
// In the NUL-separated form every entry is a literal path: names may begin with '-' or '#'. In a
// list of lines, such a name is written as ./-name. ".." is resolved by text.
//
// A relative path is tried below the directory of the list, then below each prefix in order. The
// first of these places that is within a prefix and holds such a file is used, and is tried first
// for later entries. An exclusion applies to all places.
//
// With `look_at_each`, the origin is asked whether each listed path exists. Without it, only walks
// send requests to the origin, and a listed path is returned as `unknown`. If the caller finds that
// such a path is a directory, or not a file, it reports this by walk() or refuse().
//
// Nothing is left out silently: see refusals(). Thread safety: one thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "prefetch/order/dir_walk.h"
#include "prefetch/order/list_entries.h"
#include "prefetch/order/list_paths.h"
#include "prefetch/order/refusals.h"

namespace cube::prefetch {

struct PathListOptions {
  std::string list;
  std::vector<std::string> prefixes;  // normalised
  bool look_at_each = false;
  std::string directory = {};  // base of relative paths; empty: the list's own directory
  const cache::Origins* origins = nullptr;  // this thread's own; null: all files are on mounts
};

struct PathEntry {
  static constexpr std::uint64_t k_no_walk = UINT64_MAX;

  const char* path = nullptr;  // absolute and normalised; valid until the next call
  std::uint64_t sequence = 0;  // counted from 0, without gaps
  // The sequence number of the first entry of the same directory walk; k_no_walk: a line named this
  // entry.
  std::uint64_t walk = k_no_walk;
  enum Kind : std::uint8_t { unknown, file } kind = unknown;
};

class PathList {
 public:
  // Returns null on failure; `why` is then a sentence about the list.
  static std::unique_ptr<PathList> open(PathListOptions options, std::string& why);

  enum class Next { entry, end, error };
  Next next(PathEntry& entry);
  int error() const { return reader_.error(); }

  // walk() reports that an unknown entry is a directory; next() then returns its files. refuse()
  // reports that an entry will not be fetched.
  void walk(std::string_view directory) { directories_.emplace_back(directory); }
  void refuse(Refusal reason, std::string_view path, int error = 0) {
    refusals_.count(reason, path, 0, error);
  }

  const Refusals& refusals() const { return refusals_; }
  // Logs one line for each reason, and one if the list was changed or could not be read to its end.
  void log() const;

 private:
  PathList(PathListOptions options, ListEntries reader)
      : options_(std::move(options)), reader_(std::move(reader)) {
    walk_.use_origins(options_.origins);
  }

  enum class Verdict : std::uint8_t { none, unknown, file };
  Verdict take_line(std::string_view line);
  Verdict take_path(std::string_view text);
  Verdict take_relative(std::string_view text);
  Verdict judge(bool is_directory);
  Verdict take_walked();
  Verdict exclude(std::string_view text);
  bool is_covered(std::string_view path) const;
  base::Result<cache::FileStat> look() const;
  Verdict refuse_line(Refusal reason, std::string_view text, int error = 0) {
    refusals_.count(reason, text, reader_.line(), error);
    return Verdict::none;
  }

  PathListOptions options_;
  ListEntries reader_;
  DirWalk walk_;
  Exclusions exclusions_;
  Refusals refusals_;
  // Directories below which relative paths are tried: the list's own directory first.
  std::vector<std::string> places_;
  std::size_t place_ = SIZE_MAX;  // the place that held the last path
  std::deque<std::string> directories_;
  std::string path_;
  std::uint64_t given_ = 0, walk_began_ = 0;
};

}  // namespace cube::prefetch
