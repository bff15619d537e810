// Files of directories that a program has listed and now reads from: as the directory has them, without what is below in
// further directories, while the resident pool has room. Thread safety: one thread.
#pragma once

#include <deque>
#include <string>
#include <unordered_set>

#include "cache/file_cache.h"
#include "prefetch/dir_walk.h"
#include "prefetch/path_source.h"

namespace cube::prefetch {

class ListingSource final : public PathSource {
 public:
  static constexpr std::uint32_t k_reader = UINT32_MAX;

  explicit ListingSource(cache::FileCache& cache) : cache_(cache) {}
  // Of the thread that calls next().
  void use_packs(const cache::PackMounts* packs) {
    packs_ = packs;
    walk_.use_packs(packs);
  }
  Next next(PlannedFile& file) override;

 private:
  void take_posted();
  bool next_of_walk(PlannedFile& file);

  cache::FileCache& cache_;
  const cache::PackMounts* packs_ = nullptr;
  DirWalk walk_;
  std::deque<std::string> waiting_;
  std::unordered_set<std::uint64_t> known_;  // hashes of directories, each of which is fetched once
  std::uint64_t sequence_ = 0;
};

}  // namespace cube::prefetch
