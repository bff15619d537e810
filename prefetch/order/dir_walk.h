// The files below a directory, depth first and in the order in which the file system lists them:
// nothing is sorted, so a directory with millions of entries takes no more memory than a small one
// (a block and an fd for each level). Symbolic links below the root are given as files and never
// followed into directories, so there are no loops. Thread safety: one thread.
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
    Refusal reason = Refusal::unreadable;  // of refused, as the next
    int error = 0;
  };

  // Opened by the walk's own thread; null: all files are on mounts. Before begin().
  void use_origins(const cache::Origins* origins) { origins_ = origins; }
  // 0, or the errno of the root. `from`: a position() of an earlier walk of the same root, to go on
  // there; a file system that has given the position up may pass by some files, or tell some again.
  int begin(const std::string& root, std::int64_t from = 0);
  // Behind what was told last, if that is in the root itself.
  std::int64_t position() const { return position_; }
  bool is_walking() const { return !levels_.empty(); }
  // A directory is told before what is in it; `leave_out` then goes past it.
  FoundEntry next();
  void leave_out();
  const std::string& path() const { return path_; }  // of what was found

 private:
  static constexpr std::size_t k_block = 16 << 10;
  static constexpr std::size_t k_most_levels = 64;

  struct Release {
    void operator()(cache::Listing* directory) const { directory->release(); }
  };
  struct OpenDirectory {
    base::UniqueFd fd;
    std::unique_ptr<std::byte[]> block;
    std::unique_ptr<cache::Listing, Release> listing;  // instead of both
    std::size_t at = 0, end = 0;
    std::size_t path_length = 0;
  };
  int enter(int parent, const char* name, int flags);
  int enter_listing();
  FoundEntry look_at(OpenDirectory& level, const char* name, unsigned char type);

  const cache::Origins* origins_ = nullptr;
  std::vector<OpenDirectory> levels_;
  std::string path_;
  bool enters_ = false;  // the directory told last
  std::int64_t position_ = 0;
};

}  // namespace cube::prefetch
