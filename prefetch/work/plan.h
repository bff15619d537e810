// Combines all sources of the order, best first: the job's announcements, the list, and the
// directories that the job has listed. Each source has its own range of reader numbers, by which
// results are passed back to the source. Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "prefetch/order/announced/announcements.h"
#include "prefetch/order/list_source.h"
#include "prefetch/order/listing_source.h"
#include "prefetch/work/prefetcher.h"

namespace cube::prefetch {

class Plan final : public PathSource {
 public:
  explicit Plan(cache::FileCache& cache) : listings_(cache) {}
  void use_origins(const cache::Origins* origins) { listings_.use_origins(origins); }
  // Returns true if programs read from listed directories and will soon want more files from them.
  bool is_following_reads() { return listings_.is_following_reads(); }
  void set_announcements(std::unique_ptr<Announcements> announcements) {
    announcements_ = std::move(announcements);
  }
  void set_list(std::unique_ptr<ListSource> list) { list_ = std::move(list); }
  Announcements* announcements() { return announcements_.get(); }
  ListSource* list() { return list_.get(); }

  // The reader whose file next() would return; empty if next() would return no file.
  std::optional<std::uint32_t> next_reader();
  Next next(PlannedFile& file) override;
  std::uint64_t passed(std::uint32_t reader) override;

  void settle(const std::vector<Settled>& rows);
  // Handles the files that the prefetcher has handed back: the list walks those that are
  // directories.
  void refused(const std::vector<RefusedFile>& files);
  // Call this when all fetches of files from next() have ended. Returns true if a round of the list
  // has ended with them.
  bool all_is_known();

 private:
  std::unique_ptr<Announcements> announcements_;
  std::unique_ptr<ListSource> list_;
  ListingSource listings_;
};

}  // namespace cube::prefetch
