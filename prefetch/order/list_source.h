// CUBESHIM_PREFETCH_LIST as an order: returns the files of the list once. If they do not all stay
// in memory, it repeats them, because each epoch needs them again. Thread safety: one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "prefetch/order/path_list.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

class ListSource final : public PathSource {
 public:
  static constexpr std::uint32_t k_reader = 0;

  // Null: `why` is a sentence. `from`: how many of the first entries to skip in the first round,
  // because they have been handled. `repeats` returns at the end of a round whether another one
  // follows.
  static std::unique_ptr<ListSource> open(PathListOptions options, std::uint64_t from,
                                          bool (*repeats)(void*), void* argument, std::string& why);

  // Returns none_yet at the end of a round, because the last returned paths may turn out to be
  // directories.
  Next next(PlannedFile& file) override;
  // Call it when all fetches of paths from next() have ended. Ends the round and returns true if
  // all of the round was given.
  bool all_is_known();
  // Reports that a path from next() is a directory, whose files come next (walk), or that it is not
  // fetched (refuse).
  void walk(const PlannedFile& directory);
  void refuse(Refusal reason, const std::string& path, int error);
  // How far the first round has got, for the next leader. A directory is walked from its beginning,
  // because its files may be listed in another order.
  std::uint64_t dealt_with() const {
    return first_round_ ? std::min(given_, first_directory_) : k_all;
  }
  // How many entries of the first round precede the one with this sequence number.
  std::uint64_t before(std::uint64_t sequence) const {
    return first_round_ ? skip_ + sequence : k_all;
  }
  static constexpr std::uint64_t k_all = UINT64_MAX;
  // Logs the entries that were left out, once, when the first round is over.
  void log();

 private:
  ListSource() = default;

  PathListOptions options_;
  std::unique_ptr<PathList> list_;
  bool (*repeats_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::uint64_t first_directory_ = UINT64_MAX;  // entries before the first directory
  std::uint64_t skip_ = 0, given_ = 0, sequence_ = 0, began_at_ = 0;
  bool first_round_ = true, is_round_over_ = false, is_over_ = false, is_told_ = false;
};

}  // namespace cube::prefetch
