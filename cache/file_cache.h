// The entry point of cache/. FileCache opens a file below a prefix from RAM, a tier or the origin.
// If the record is not in RAM, the open continues in cache/fill/demand_open.h. Invariants: the
// bytes of a Pin are those that the origin had with the recorded size and mtime.
// CUBESHIM_CONSISTENCY decides how recently size and mtime were checked. A file that is open for
// writing on this node is not cached. Thread-safe. A hit allocates nothing, takes no lock and is
// async-signal-safe.
#pragma once

#include <string>

#include "cache/base/settings/config.h"
#include "cache/changes.h"
#include "cache/corrections.h"
#include "cache/fetch_ahead.h"
#include "cache/fill/open_request.h"
#include "cache/large_files.h"
#include "cache/metadata/mount_metadata.h"
#include "cache/tier/tier_writer.h"

namespace cube::cache {

class ClusterTier;

class FileCache {
 public:
  // The result is never freed, because other threads may still be in one of its calls.
  static base::Result<FileCache*> attach(const base::Config& config, const base::ProcessId& job,
                                         bool create, std::string& why);
  // Whether a region exists that has cached files of this device. Makes at most three system calls.
  static bool may_hold(const base::Config& config, std::uint64_t device) {
    return Region::may_hold(config.ram_dir, config.name, device);
  }
  // Call it before the first open. Until then, or if `origins` is null, all origins are mounts.
  void use_origins(const Origins* origins) {
    parts_.freshness.use_origins(origins);
    // The kernel's listings do not show the files of packs.
    if (parts_.freshness.origins() != nullptr) metadata_.switch_off();
  }

  OpenOutcome open(const OpenRequest& request);
  // Finds a fresh record in RAM, for stat and access. Does not fetch.
  Pin find(const OpenRequest& request);
  // Makes a mappable copy of a record that cannot be mapped. The copy replaces the record in the
  // index.
  base::Result<Pin> make_mappable(const Record& record);

  // For the gateway, which fills the region directly.
  CacheParts& parts() { return parts_; }
  // For the buckets of this process.
  BucketRegion bucket_region(const base::Config& config) {
    return {&parts_.region, &parts_.ram, config.consistency, config.s3_timeout * 1'000'000'000};
  }

  Changes& changes() { return changes_; }
  Corrections& corrections() { return corrections_; }
  FetchAhead& ahead() { return ahead_; }
  LargeFiles& large() { return large_; }
  MountMetadata& metadata() { return metadata_; }
  const MountMetadata& metadata() const { return metadata_; }
  const Tiers& tiers() const { return parts_.tiers; }
  // May be called only for a cache that has tiers.
  TierWriter tier_writer() { return {parts_.ram, parts_.tiers, parts_.rules.block}; }
  base::Stats& stats() { return parts_.stats(); }
  // Counts an open that is not served, and keeps the first path for the report.
  void count_unserved(base::Counter reason, std::string_view path) {
    parts_.count_unserved(reason, path);
  }
  // For mappings of the region's file, and for reports.
  Region& region() { return parts_.region; }

  // Stops the thread that talks to the cluster. A later miss can start the thread again. False: the
  // thread did not stop in time.
  bool has_cluster_thread() const;
  bool stop_cluster(std::uint64_t at_most_ns);

  // Call it when a child of this process has ended. A child that never attached may have changed
  // files unnoticed; the metadata of this job is then revalidated. `pid` 0: the child's pid is not
  // known.
  void note_child_ended(std::uint32_t pid);
  // Call it before this process execs another program.
  void note_exec();

  // Leaves the region at the end of the process.
  void detach();
  // In a forked child: unmaps the parent's mappings by system calls alone. The object must not be
  // used afterwards.
  void abandon();
  // Call it in every forked child. Another thread of the parent may have held an fd of the life
  // lock in order to attach. The child must close its copy of that fd.
  static void forget_attaching() { close_life_lock_after_fork(); }
  // Forgets fills in progress, because they belong to the parent. Each forked child must call this
  // before it closes any open file.
  static void forget_fills();

 private:
  FileCache(Region& region, const base::Config& config);
  void attach_cluster(const base::Config& config);
  void attach_disk(const base::Config& config, const base::ProcessId& job);

  CacheParts parts_;
  ClusterTier* cluster_ = nullptr;
  Changes changes_;
  FetchAhead ahead_;
  LargeFiles large_;
  MountMetadata metadata_;
  Corrections corrections_;
};

}  // namespace cube::cache
