// A list of what will be needed (CUBESHIM_PREFETCH_LIST), read as it is used up: 100 million lines
// take no more memory than ten. An entry is a line, or a NUL-terminated name (list_entries.h).
//
//   /data/train/a.jpg        a file
//   /data/train              a directory: all files below it (dir_walk.h); one that ends in '/' can
//   be nothing else train/a.jpg              relative: see below
//   - /data/train/bad        leaves out this path and all below it, from this line on;
//   "-/data/train/bad" is the same # text                   a comment; empty lines are passed over
//   too
//
// In the NUL-separated form every entry is a path as it stands: names there may begin with '-' or
// '#'. In a list of lines such a name is written ./-name. ".." is resolved by text.
//
// A relative path is tried below the directory of the list, then below each prefix in their order;
// the first place that lies within a prefix and holds such a file is taken, and that place is tried
// first for those after it. An exclusion is meant for all of these places.
//
// Whether a listed path is there at all is asked of the origin for each with `look_at_each`.
// Without, the list costs the origin nothing but the walks: an entry then is `unknown`, and who
// finds that it is a directory, or no file, says so by walk() and refuse().
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
  std::string directory = {};               // where relative paths begin; empty: the list's own
  const cache::Origins* origins = nullptr;  // opened by this thread; null: all files are on mounts
};

struct PathEntry {
  const char* path = nullptr;  // absolute and normalised, until the next call
  std::uint64_t sequence = 0;  // from 0, without gaps
  enum Kind : std::uint8_t { unknown, file } kind = unknown;
};

class PathList {
 public:
  // Null: `why` is a sentence about the list.
  static std::unique_ptr<PathList> open(PathListOptions options, std::string& why);

  enum class Next { entry, end, error };
  Next next(PathEntry& entry);
  int error() const { return reader_.error(); }

  // An entry that was given as unknown is a directory, whose files come next; or it will not be
  // fetched.
  void walk(std::string_view directory) { directories_.emplace_back(directory); }
  void refuse(Refusal reason, std::string_view path, int error = 0) {
    refusals_.count(reason, path, 0, error);
  }

  const Refusals& refusals() const { return refusals_; }
  // A line of log for each reason, and one where the list was changed or could not be read to its
  // end.
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
  void exclude(std::string_view text);
  bool is_covered(std::string_view path) const;
  base::Result<cache::FileStat> look() const;
  void refuse_line(Refusal reason, std::string_view text, int error = 0) {
    refusals_.count(reason, text, reader_.line(), error);
  }

  PathListOptions options_;
  ListEntries reader_;
  DirWalk walk_;
  Exclusions exclusions_;
  Refusals refusals_;
  std::vector<std::string>
      places_;  // where relative paths are looked for, the list's own directory first
  std::size_t place_ = SIZE_MAX;  // the one that held the last
  std::deque<std::string> directories_;
  std::string path_;
  std::uint64_t given_ = 0;
};

}  // namespace cube::prefetch
