// A source of files from directories that programs have listed and now read. It returns the files
// of a directory, without subdirectories, while the resident pool has room. The reads of the
// directory limit how many bytes may be fetched (may_be_fetched). At this limit, the source leaves
// the directory; it continues when programs have read more of the directory. The files are returned
// in the order in which programs read them, if there are not too many (listing_order.h). The source
// handles at most 1,024 directories; the rest wait. A directory from which no process has read for
// a minute is forgotten until a process reads from it again. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/file_cache.h"
#include "prefetch/order/dir_walk.h"
#include "prefetch/order/listing_order.h"
#include "prefetch/order/path_source.h"

namespace cube::prefetch {

// The bytes of a listed directory that programs have read, and the bytes that were fetched because
// it was listed.
struct ListingReads {
  std::uint64_t read = 0;   // bytes of files that were opened
  std::uint64_t early = 0;  // bytes of opened files that had been fetched ahead
  std::uint64_t fetched = 0;
  std::uint64_t files = 0;  // how many files `read` covers
};

// Returns how many more bytes of the directory may be fetched. At first, the total is limited to
// twice the bytes read from the directory, or a small minimum. If half of the bytes read had been
// fetched ahead, the fetches may be ahead of the readers by four times the bytes that were read.
// Readers that follow the order of the files reach this state immediately. A program that reads at
// random opens prefetched files only by chance. Such a program might stop soon, because a rank or a
// Ray worker reads only a share of the directory.
std::uint64_t may_be_fetched(const ListingReads& reads);

class ListingSource final : public PathSource {
 public:
  static constexpr std::uint32_t k_reader = UINT32_MAX;
  static constexpr std::size_t k_most_windows = 1024, k_most_walks = 16;
  static constexpr std::size_t k_most_names = 65536, k_most_names_of_one = 8192;

  explicit ListingSource(cache::FileCache& cache)
      : cache_(cache), listings_(cache.ahead().listings()) {}
  // Sets the origins of the thread that calls next().
  void use_origins(const cache::Origins* origins) { origins_ = origins; }
  // Keeps at most this many names in memory. For tests.
  void keep_names(std::size_t most) { most_names_ = most; }
  Next next(PlannedFile& file) override;
  // Returns true if a listed directory was read within the last second, and more of its files can
  // be returned.
  bool is_following_reads();

 private:
  // A directory that the source is working on.
  struct Window {
    std::string directory;
    std::uint64_t hash = 0;
    std::shared_ptr<Allowance> allowance = std::make_shared<Allowance>();
    std::unique_ptr<ListingOrder> names;  // null: there are too many, so `walk` is used
    std::unique_ptr<DirWalk> walk;        // null: the walk continues at `position`
    std::int64_t position = 0;
    std::uint64_t walked = 0;  // the value of walked_ when this window was last walked
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

  cache::FileCache& cache_;
  cache::Listings listings_;
  const cache::Origins* origins_ = nullptr;
  std::vector<std::unique_ptr<Window>> windows_;
  std::size_t at_ = 0;  // the index of the next window
  std::size_t most_names_ = k_most_names;
  std::uint64_t sequence_ = 0, walked_ = 0;
  std::uint64_t not_before_ns_ = 0;  // earliest time of the next check if there are many windows
  std::uint32_t seen_reads_ = 0;
  std::uint64_t reads_grew_ns_ = 0;
};

}  // namespace cube::prefetch
