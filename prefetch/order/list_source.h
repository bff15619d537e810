// CUBESHIM_PREFETCH_LIST as an order: its files once, and then, where they do not all stay in
// memory, again and again, for each epoch needs them anew. Thread safety: one thread.
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

  // Null: `why` is a sentence. `from`: the first entries of the first round that need not be given,
  // for somebody has dealt with them. `repeats` says at the end of a round whether there shall be
  // another.
  static std::unique_ptr<ListSource> open(PathListOptions options, std::uint64_t from,
                                          bool (*repeats)(void*), void* argument, std::string& why);

  // none_yet at the end of a round: what was given last may turn out to be directories.
  Next next(PlannedFile& file) override;
  // Nothing of what was given is on its way any more. Ends the round, if it is at its end; true
  // then.
  bool all_is_known();
  // Says of a path that next() gave that it is a directory, whose files come next, or that it is
  // not fetched.
  void walk(const PlannedFile& directory);
  void refuse(Refusal reason, const std::string& path, int error);
  // How far the first round is, for the next leader. A directory is begun anew: its files may come
  // in another order.
  std::uint64_t dealt_with() const {
    return first_round_ ? std::min(given_, first_directory_) : k_all;
  }
  // How many entries come before the one of this sequence, in the first round.
  std::uint64_t before(std::uint64_t sequence) const {
    return first_round_ ? skip_ + sequence : k_all;
  }
  static constexpr std::uint64_t k_all = UINT64_MAX;
  // The entries that were left out, told once, when the first round is over.
  void log();

 private:
  ListSource() = default;

  PathListOptions options_;
  std::unique_ptr<PathList> list_;
  bool (*repeats_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::uint64_t first_directory_ = UINT64_MAX;  // entries before it
  std::uint64_t skip_ = 0, given_ = 0, sequence_ = 0, began_at_ = 0;
  bool first_round_ = true, is_round_over_ = false, is_over_ = false, is_told_ = false;
};

}  // namespace cube::prefetch
