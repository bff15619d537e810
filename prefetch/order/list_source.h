// A source that returns the files of CUBESHIM_PREFETCH_LIST. If not all of them stay in memory, the
// source repeats the list, because each epoch needs its files again. Thread safety: one thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "prefetch/order/path_list.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

class ListSource final : public PathSource {
 public:
  static constexpr std::uint32_t k_reader = 0;

  // Returns null on failure; `why` is then a sentence. `from`: how many entries at the beginning of
  // the first round to skip, because they have been handled. `repeats` is called at the end of a
  // round, and returns whether another round follows.
  static std::unique_ptr<ListSource> open(PathListOptions options, std::uint64_t from,
                                          bool (*repeats)(void*), void* argument, std::string& why);

  // Returns none_yet at the end of a round, because some of the last paths can turn out to be
  // directories.
  Next next(PlannedFile& file) override;
  // Call this when all fetches of paths from next() have ended. If next() has returned all files of
  // the round, ends the round and returns true.
  bool all_is_known();
  // walk() reports that a path from next() is a directory; next() then returns its files. refuse()
  // reports that a path will not be fetched.
  void walk(const PlannedFile& directory);
  void refuse(Refusal reason, const std::string& path, int error);
  // How many entries of the first round the next leader need not handle. `unended`: the sequence
  // number of the first file that is not handled yet; k_all: all files that next() has returned are
  // handled. A file that was handled in one call must be so in later calls. The next leader walks a
  // directory from its beginning, because it might list the files in another order.
  std::uint64_t dealt_with(std::uint64_t unended);
  static constexpr std::uint64_t k_all = UINT64_MAX;
  // When the first round is over, logs the entries that were left out. Logs them only once.
  void log();

 private:
  // A walk of a directory in the first round. Its entries are counted from the beginning of the
  // list. `end` is k_all while the walk goes on.
  struct Walk {
    std::uint64_t begin = 0, end = k_all;
  };
  ListSource() = default;
  void note_walk(const PathEntry& entry);

  PathListOptions options_;
  std::unique_ptr<PathList> list_;
  bool (*repeats_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::deque<Walk> walks_;                      // those that dealt_with() may have to move back to
  std::uint64_t first_directory_ = UINT64_MAX;  // entries before the first directory
  std::uint64_t skip_ = 0, given_ = 0, sequence_ = 0, began_at_ = 0;
  bool first_round_ = true, is_round_over_ = false, is_over_ = false, is_told_ = false;
};

}  // namespace cube::prefetch
