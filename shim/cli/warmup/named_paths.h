// The paths that the user names to `cubeshim warmup`, in order: files, directories (which are
// walked) and the entries of lists. Thread safety: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/base/unique_fd.h"
#include "prefetch/order/path_list.h"
#include "prefetch/order/path_source.h"

namespace cube::cli {

// The arguments of the command. Standard input is copied, so that it can be read twice.
struct NamedInput {
  std::vector<std::string> paths;
  std::string list;  // "-": standard input

  // Sets `lists` and `directories`. On failure, returns false and sets `why` to a sentence.
  bool prepare(const std::vector<std::string>& prefixes, std::string& why);
  std::vector<prefetch::PathListOptions> lists;
  std::vector<std::string> directories;  // the directories among `paths`, absolute

 private:
  bool take_paths(const std::vector<std::string>& prefixes, std::string& why);
  bool take_list(const std::vector<std::string>& prefixes, std::string& why);
  base::UniqueFd paths_fd_, list_fd_;
};

class NamedPaths {
 public:
  static std::unique_ptr<NamedPaths> open(const NamedInput& input, std::string& why);

  // Returns false if no path is left. Afterwards, walk() can still add a directory. walk() and
  // refuse() need the `reader` that next() sets.
  bool next(prefetch::PlannedFile& file);
  void walk(const prefetch::PlannedFile& directory) {
    lists_[directory.reader]->walk(directory.path);
  }
  void refuse(prefetch::Refusal reason, const prefetch::PlannedFile& file, int error) {
    lists_[file.reader]->refuse(reason, file.path, error);
  }
  const std::vector<std::unique_ptr<prefetch::PathList>>& lists() const { return lists_; }
  // True if the user named this list, so that its line numbers are meaningful.
  bool is_list(std::size_t i) const { return i >= first_list_; }

 private:
  std::vector<std::unique_ptr<prefetch::PathList>> lists_;
  std::size_t first_list_ = 0;
  std::uint64_t given_ = 0;
};

}  // namespace cube::cli
