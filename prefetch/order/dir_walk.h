// A walk over the files below a directory, depth first, in the order in which the file system lists
// them. Nothing is sorted, so a directory with millions of entries needs no more memory than a
// small directory: a block and an fd for each level. Symbolic links below the root count as files.
// The walk never follows them into directories, so there are no loops. Thread safety: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/base/unique_fd.h"
#include "cache/origin/origins.h"
#include "cache/record/listing.h"
#include "prefetch/order/refusals.h"

namespace cube::prefetch {

class DirWalk {
 public:
  struct FoundEntry {
    enum Kind : std::uint8_t { file, link, directory, refused, end } kind = end;
    Refusal reason = Refusal::unreadable;  // set, like the next field, if the entry is refused
    int error = 0;
  };

  // Sets the origins that the walk's own thread has opened; null if all files are on mounts. Call
  // before begin().
  void use_origins(const cache::Origins* origins) { origins_ = origins; }
  // Returns 0, or the errno of opening the root. The walk starts at `from`, which is 0 or a
  // position() of an earlier walk of the same root. If that position is no longer valid in the file
  // system, the walk can skip or repeat some files.
  int begin(const std::string& root, std::int64_t from = 0);
  // The position after the last returned entry, if that entry is in the root itself.
  std::int64_t position() const { return position_; }
  bool is_walking() const { return !levels_.empty(); }
  // next() returns a directory before its contents; leave_out() then skips these contents.
  FoundEntry next();
  void leave_out() { enters_ = false; }
  // Moves on to the next file or link in the root itself. Returns false if there are no more.
  bool next_file();
  const std::string& path() const { return path_; }  // the path of the last entry

 private:
  static constexpr std::size_t k_block = 16 << 10;
  static constexpr std::size_t k_most_levels = 64;

  struct Release {
    void operator()(cache::Listing* directory) const { directory->release(); }
  };
  struct OpenDirectory {
    base::UniqueFd fd;
    std::unique_ptr<std::byte[]> block;
    std::unique_ptr<cache::Listing, Release> listing;  // replaces both
    std::size_t at = 0, end = 0;
    std::size_t path_length = 0;
  };
  int enter(int parent, const char* name, int flags);
  int enter_listing();
  FoundEntry look_at(OpenDirectory& level, const char* name, unsigned char type);

  const cache::Origins* origins_ = nullptr;
  std::vector<OpenDirectory> levels_;
  std::string path_;
  bool enters_ = false;  // whether to enter the directory that was returned last
  std::int64_t position_ = 0;
};

}  // namespace cube::prefetch
