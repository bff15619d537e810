// Gathers the stats of all entries of a directory, and the targets of its links, by several threads
// in parallel, and publishes them to the node as one record. It serves programs that ask for one
// stat after the other. One process of the node gathers for a directory at a time (a flight).
// Thread safety: any number of threads may call step() at a time; one calls begin() and the
// destructor. It allocates, and is not for signal handlers.
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
  // `most`: the most entries that a directory may have, if `asked` is empty. Null: the directory
  // cannot be listed, lacks that name or has too many entries; nearly all stats are known; or
  // another process is gathering them.
  static std::unique_ptr<StatGather> begin(MountMetadata& metadata, const std::string& directory,
                                           std::string_view asked,
                                           std::uint32_t most = k_most_unasked);
  // How many stats of the directory's entries are fresh; 0 also if it has no listing.
  static std::uint32_t count_known(MountMetadata& metadata, const std::string& directory);

  // Opens the directory for a thread that takes part; -1: the path now names another directory.
  base::UniqueFd open() const;
  // Gathers one more entry. False: none is left to begin.
  bool step(int directory);
  // True once, after the last entry was gathered.
  bool is_just_over() {
    return done_.load(std::memory_order_acquire) == data_.count() && !is_told_.exchange(true);
  }

 private:
  static constexpr std::uint32_t k_most_unasked = 10'000;

  StatGather(MountMetadata& metadata, const std::string& directory, Pin&& listing,
             const DirectoryData& data, SingleFlight::Ticket&& flight);
  StatTable::Entry look(int directory, std::string_view name);
  // A mount may allow links to be read but not followed (mount -o nosymfollow).
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
  std::string targets_;  // each followed by a zero; guarded by mutex_
  std::atomic<std::uint32_t> next_{0}, done_{0};
  std::atomic<bool> is_told_{false};
  enum class Followed : std::uint8_t { unknown, yes, no };
  std::atomic<Followed> followed_{Followed::unknown};
};

}  // namespace cube::cache
