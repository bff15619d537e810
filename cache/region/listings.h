// Directories that programs of the node have listed, and how many bytes of each directory's files
// programs have read. If a program lists a directory and then reads the directory's files one after
// another, the files are fetched ahead. Files are not fetched in this way if a better source tells
// the order of reading (prefetch/order/listing_source.h).
//
// Each directory takes one row of the region, no matter how many files it holds. Processes that
// start later, and processes of other jobs, also find the row. The hash of a directory determines
// eight candidate rows. If all of them are taken, the directory that has not been listed or read
// from for the longest time loses its row. The files of that directory are then fetched on demand.
// A process posts the path of a directory to the leader, which then fetches the directory's files.
// Invariants: no process owns a row, so a death leaves at worst wrong counts, which are reset when
// the row is reused. If a process dies while it writes a ListingSlot, the slot is freed together
// with everything else that the process held. Thread-safe, and async-signal-safe, except take,
// which only the leader calls.
#pragma once

#include <string>
#include <string_view>

#include "cache/region/region.h"

namespace cube::cache {

// If no process has listed or read from a directory for this time, its counts start again at zero.
inline constexpr std::uint32_t k_listing_is_old_s = 60;

class Listings {
 public:
  explicit Listings(const Region& region) : region_(&region) {}

  void note_listed(std::string_view directory);

  // Notes that a file is opened for the first time since the file was put into memory. True: the
  // directory of the file was listed, is read file by file, and has not been posted to the leader.
  bool note_read(std::string_view file, std::uint64_t bytes, bool was_fetched_ahead);
  // Notes further bytes that were read of a file whose first open has been noted.
  void note_bytes(std::string_view file, std::uint64_t bytes);
  // Posts the directory to the leader, which then fetches its files. False: too many directories
  // are waiting, or the path is too long.
  bool post(std::string_view directory);

  // These functions are for the leader. The leader calls begin_lead once, when it begins to lead.
  void begin_lead();
  bool take(std::string& directory);
  // Null: the directory has no row, or has lost it.
  ListedRow* find(std::uint64_t hash) const;
  // Notes that the leader handles the directory, so that no process posts the directory. give_back
  // removes the note.
  void take_charge(ListedRow& row);
  void give_back(ListedRow& row) { row.lead.store(0, std::memory_order_relaxed); }
  bool is_old(const ListedRow& row) const;
  // The number of first reads of files of listed directories.
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
