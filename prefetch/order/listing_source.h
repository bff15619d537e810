// Files of directories that programs have listed and now read from: as the directory has them,
// without what is below in further directories, while the resident pool has room, and no more than
// follows from what is read of the directory (may_be_fetched). They come in the order in which they
// are read, if they are not too many (listing_names.h). A directory is left where that is used up,
// and gone on with when more is read of it. At most 1,024 are in hand, the rest waits; those that
// nobody has read from for a minute are forgotten, until somebody reads from them again. Thread
// safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/file_cache.h"
#include "prefetch/order/dir_walk.h"
#include "prefetch/order/listing_names.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

// The bytes that programs have had of a listed directory, and the bytes that were fetched of it
// because it was listed.
struct ListingReads {
  std::uint64_t read = 0;   // files that were opened
  std::uint64_t early = 0;  // of these, those that had been fetched ahead
  std::uint64_t fetched = 0;
  std::uint64_t files = 0;  // in `read`
};

// How many bytes more may be fetched of the directory: in all twice as much as was read of it, or a
// little. Once half of the bytes read had been fetched ahead, there may be four times as much ahead
// of its readers as they have read. Readers in the order of the files come to that at once. A
// program that reads at random meets what was fetched by chance, and may leave off soon: a rank or
// a worker of Ray has a share of the directory.
std::uint64_t may_be_fetched(const ListingReads& reads);

class ListingSource final : public PathSource {
 public:
  static constexpr std::uint32_t k_reader = UINT32_MAX;
  static constexpr std::size_t k_most_windows = 1024, k_most_walks = 16;
  static constexpr std::size_t k_most_names = 65536, k_most_names_of_one = 8192;

  explicit ListingSource(cache::FileCache& cache)
      : cache_(cache), listings_(cache.ahead().listings()) {}
  // For the thread that calls next().
  void use_origins(const cache::Origins* origins) { origins_ = origins; }
  // At most so many names in memory. For tests.
  void keep_names(std::size_t most) { most_names_ = most; }
  Next next(PlannedFile& file) override;
  // Something was read of a listed directory within the last second, and there is more of one in
  // hand.
  bool is_following_reads();

 private:
  // A directory in hand.
  struct Window {
    std::string directory;
    std::uint64_t hash = 0;
    std::shared_ptr<Allowance> allowance = std::make_shared<Allowance>();
    std::unique_ptr<ListingNames> names;  // null: there are too many, and `walk` tells them
    std::unique_ptr<DirWalk> walk;        // null: it goes on at `position`
    std::int64_t position = 0;
    std::uint64_t walked = 0;  // when, in turns of all
    bool is_begun = false;
    bool is_over = false;  // all of it was planned
  };
  enum class Given : std::uint8_t { file, nothing_now, nothing_more };

  void take_posted();
  void drop_all();
  Given give(Window& window, PlannedFile& file);
  Given give_next(Window& window, PlannedFile& file);
  void begin(Window& window);
  bool open_walk(Window& window);
  static bool next_of_walk(Window& window, std::string& path);

  cache::FileCache& cache_;
  cache::Listings listings_;
  const cache::Origins* origins_ = nullptr;
  std::vector<std::unique_ptr<Window>> windows_;
  std::size_t at_ = 0;  // whose turn it is
  std::size_t most_names_ = k_most_names;
  std::uint64_t sequence_ = 0, walked_ = 0;
  std::uint64_t not_before_ns_ = 0;  // of the next look at many windows
  std::uint32_t seen_reads_ = 0;
  std::uint64_t reads_grew_ns_ = 0;
};

}  // namespace cube::prefetch
