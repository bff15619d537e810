// Directories that programs of the node have listed, and what is read of each: the files of one
// from which a program then reads file after file are fetched ahead, where nothing better is known
// (prefetch/order/listing_source.h).
//
// A row of the region for each directory, whatever it holds; processes that are started later, and
// those of other jobs, find it there. Eight rows are a directory's by its hash: where all are
// taken, the one goes that was neither listed nor read from for longest, and its files are fetched
// by those who need them. A directory of which the leader shall fetch is posted to it by path.
// Invariants: no row is held by anybody, so a death leaves at worst wrong counts, which are reset
// when a row is taken anew; a slot that a dead process was writing is freed with the rest that it
// has left. Thread safety: all of it, and async-signal-safe, but for take, which is the leader's.
#pragma once

#include <string>
#include <string_view>

#include "cache/region/region.h"

namespace cube::cache {

// A directory that nobody has listed or read from for so long begins anew.
inline constexpr std::uint32_t k_listing_is_old_s = 60;

class Listings {
 public:
  explicit Listings(const Region& region) : region_(&region) {}

  void note_listed(std::string_view directory);

  // A file is opened for the first time since it came into memory. True: its directory was listed,
  // is read file by file, and the leader does not know of it.
  bool note_read(std::string_view file, std::uint64_t bytes, bool was_fetched_ahead);
  // More was read of a file whose first open was noted.
  void note_bytes(std::string_view file, std::uint64_t bytes);
  // For the leader to fetch from. False: too many wait, or its path is too long.
  bool post(std::string_view directory);

  // The leader's side. It says once that it begins.
  void begin_lead();
  bool take(std::string& directory);
  // Null: it is not listed (any more).
  ListedRow* find(std::uint64_t hash) const;
  // The leader has the directory in hand, and need not be told of it; or not any more.
  void take_charge(ListedRow& row);
  void give_back(ListedRow& row) { row.lead.store(0, std::memory_order_relaxed); }
  bool is_old(const ListedRow& row) const;
  // Grows with each first read of a file of a listed directory.
  std::uint32_t reads() const {
    return region_->header().listed_reads.load(std::memory_order_relaxed);
  }

 private:
  ListedRow& row(std::uint64_t hash, std::uint32_t way) const;
  ListedRow* row_of_directory_of(std::string_view file) const;
  std::uint32_t next_lead() const {
    return region_->header().leads.load(std::memory_order_relaxed) + 1;
  }

  const Region* region_;
};

// Frees the slots that a process was writing when it ended.
void forget_posts_of(const Region& region, std::uint32_t process);

}  // namespace cube::cache
