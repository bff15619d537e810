// Gathers the stats of all entries of a directory, and the targets of its links, with several
// threads in parallel. Publishes the result to the node as one record, for programs that ask for
// one stat after another. Only one process of the node at a time gathers the stats of a directory
// (it has a flight). Thread safety: several threads may call step() at the same time. One thread
// calls begin() and the destructor. The functions allocate, so signal handlers must not call them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/metadata/mount_metadata.h"
#include "cache/region/directory_watch.h"

namespace cube::cache {

class StatGather {
 public:
  // `asked`: the name that a program has asked for; empty: the program will ask for all names.
  // `most`: if `asked` is empty, the directory may have at most this many entries. Null: the
  // directory cannot be listed, has too many entries, or lacks the name `asked`. Also null if
  // nearly all stats are known, or if another process is gathering the stats.
  static std::unique_ptr<StatGather> begin(MountMetadata& metadata, const std::string& directory,
                                           std::string_view asked,
                                           std::uint32_t most = k_most_unasked);
  // The number of the directory's entries whose stats are fresh; 0 if there is no listing.
  static std::uint32_t count_known(MountMetadata& metadata, const std::string& directory);

  // Opens the directory for a thread that gathers. -1: the path now names another directory.
  base::UniqueFd open() const;
  // Gathers the stat of one more entry. False: no entry is left.
  bool step(int directory);
  // True only at the first call after the last entry was gathered.
  bool is_just_over() {
    return done_.load(std::memory_order_acquire) == data_.count() && !is_told_.exchange(true);
  }

 private:
  static constexpr std::uint32_t k_most_unasked = 10'000;

  StatGather(MountMetadata& metadata, const std::string& directory, Pin&& listing,
             const DirectoryData& data, SingleFlight::Ticket&& flight);
  StatTable::Entry look(int directory, std::string_view name);
  // Whether the mount allows links to be followed. With `mount -o nosymfollow`, links can only be
  // read.
  bool are_links_followed(int directory);
  std::uint32_t keep_target(int directory, const char* name, const FileStat& link);
  void show();

  MountMetadata& metadata_;
  SingleFlight::Ticket flight_;
  std::string directory_;
  DirectoryWatch watch_;
  Pin listing_;
  DirectoryData data_;
  std::uint64_t began_ns_;  // base::boot_ns
  std::vector<StatTable::Entry> entries_;
  base::Mutex mutex_;
  std::string targets_;  // a zero follows each target; guarded by mutex_
  std::atomic<std::uint32_t> next_{0}, done_{0};
  std::atomic<bool> is_told_{false};
  enum class Followed : std::uint8_t { unknown, yes, no };
  std::atomic<Followed> followed_{Followed::unknown};
};

}  // namespace cube::cache
