// Directories that programs of the node have listed, and how much of each is read. If a program
// lists a directory and then reads file after file of it, its files are fetched ahead, unless
// something better is known (prefetch/order/listing_source.h).
//
// Each directory takes one row of the region, no matter how many files it holds, so processes that
// start later and those of other jobs find it. A directory's hash gives it eight candidate rows. If
// all are taken, the one that has been neither listed nor read from for the longest time loses its
// row, and its files are fetched on demand. A directory from which the leader is to fetch is posted
// to it by path. Invariants: no process owns a row, so a death leaves at worst wrong counts, which
// are reset when the row is reused; a slot that a dead process was writing is freed with everything
// else that it held. Thread-safe, and async-signal-safe, except take, which only the leader calls.
#pragma once

#include <string>
#include <string_view>

#include "cache/region/region.h"

namespace cube::cache {

// If no process has listed or read from a directory for this long, its counts start again.
inline constexpr std::uint32_t k_listing_is_old_s = 60;

class Listings {
 public:
  explicit Listings(const Region& region) : region_(&region) {}

  void note_listed(std::string_view directory);

  // Notes that a file is opened for the first time since it was put into memory. True: its
  // directory was listed and is read file by file, and has not been posted to the leader.
  bool note_read(std::string_view file, std::uint64_t bytes, bool was_fetched_ahead);
  // Notes that more was read of a file whose first open has been noted.
  void note_bytes(std::string_view file, std::uint64_t bytes);
  // Posts the directory for the leader to fetch from. False: too many directories are waiting, or
  // the path is too long.
  bool post(std::string_view directory);

  // The leader's side. The leader calls begin_lead once when it begins.
  void begin_lead();
  bool take(std::string& directory);
  // Null: the directory has no row, or has lost it.
  ListedRow* find(std::uint64_t hash) const;
  // The leader handles the directory, so it need not be posted; give_back ends that.
  void take_charge(ListedRow& row);
  void give_back(ListedRow& row) { row.lead.store(0, std::memory_order_relaxed); }
  bool is_old(const ListedRow& row) const;
  // Increases with each first read of a file of a listed directory.
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

// Frees the slots that the process was writing when it ended.
void forget_posts_of(const Region& region, std::uint32_t process);

}  // namespace cube::cache
