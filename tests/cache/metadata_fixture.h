// Functions that list a directory and gather its stats like threads of the library, and a tier that
// has the listing of a directory.
#pragma once

#include <dirent.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cache/file_cache.h"
#include "cache/metadata/mount_metadata.h"
#include "cache/metadata/stat_gather.h"
#include "cache/tier/tier.h"

namespace cube::tests {

// Returns how many entries the directory has, or -1 if it is left to the kernel.
inline int entries_of(cache::MountMetadata& names, const std::string& directory) {
  const cache::MountMetadata::Listed listed = names.list(directory, directory.c_str());
  if (listed.listing == nullptr) return -1;
  int n = 0;
  for (std::uint64_t at = 0; at < listed.listing->end(); at += listed.listing->at(at)->d_reclen)
    ++n;
  listed.listing->release();
  return n;
}

// Gathers the stats of all entries. Returns false if this is not necessary.
inline bool gather(cache::MountMetadata& names, const std::string& directory,
                   std::string_view asked) {
  const auto work = cache::StatGather::begin(names, directory, asked);
  if (work == nullptr) return false;
  const base::UniqueFd own = work->open();
  while (work->step(own.get())) {
  }
  return true;
}

// A tier that has one record. The record is in the region, but no look-up in the region finds it.
class Shelf final : public cache::Tier {
 public:
  Shelf() : Tier(0) {}
  void put(cache::RamTier& ram, cache::Pin record) {
    ram.mark_record_stale(*record);
    record_ = std::move(record);
  }
  bool visit(std::string_view, Judge& judge) override {
    return record_ && judge.judge(*record_) == Verdict::taken;
  }
  base::Result<void> offer(std::span<const std::byte>, std::span<const std::uint64_t>) override {
    return {};
  }
  void end_offers() override {}
  void content_changed(std::string_view, const cache::FileStat*) override {}
  void tree_changed() override {}
  base::TierStatus status() const override { return {}; }
  void abandon() override {}

 private:
  cache::Pin record_;
};

// The metadata of a process whose only tier is a Shelf with the listing of the directory.
struct ShelvedListing {
  cache::RamTier ram;
  Shelf shelf;
  cache::Tiers tiers, none;
  cache::MountMetadata metadata;

  ShelvedListing(cache::FileCache& cache, const base::Config& config, const std::string& directory)
      : ram(cache.region()), tiers(of(shelf)), metadata(cache.region(), ram, tiers, none, config) {
    // The listing is read at the origin, which shows whether the mount's times can be trusted.
    shelf.put(ram, metadata.listing_of(directory, directory.c_str()));
  }

 private:
  static cache::Tiers of(Shelf& shelf) {
    cache::Tiers tiers;
    tiers.add(shelf);
    return tiers;
  }
};

}  // namespace cube::tests
