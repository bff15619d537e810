// The entry point of cache/. FileCache opens a file below a prefix from RAM, a tier or the origin.
// An open that finds its record in RAM ends here; any other goes on in cache/fill/demand_open.h.
// Invariants: A Pin's bytes are what the origin held at the recorded size and mtime;
// CUBESHIM_CONSISTENCY decides how recently that was checked. A file that is open for writing on
// this node is not cached. Thread safety: all of it. A hit allocates nothing, takes no lock and is
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
  static base::Result<FileCache*> attach(const base::Config& config, const base::ProcessId& job,
                                         bool create, std::string& why);
  // Is there a region to attach to in which files of this device were cached? Three system calls at
  // most.
  static bool may_hold(const base::Config& config, std::uint64_t device) {
    return Region::may_hold(config.ram_dir, config.name, device);
  }
  // Before anybody opens anything. Until then, and with null, there are only mounts.
  void use_origins(const Origins* origins) {
    parts_.freshness.use_origins(origins);
    // The kernel's listings lack what packs have.
    if (parts_.freshness.origins() != nullptr) metadata_.switch_off();
  }

  OpenOutcome open(const OpenRequest& request);
  // A record that is there and fresh, for stat and access. No fetch.
  Pin find(const OpenRequest& request);
  // The same content laid out for mapping, for a record that is not; the new record takes the old
  // one's place.
  base::Result<Pin> make_mappable(const Record& record);

  Changes& changes() { return changes_; }
  Corrections& corrections() { return corrections_; }
  FetchAhead& ahead() { return ahead_; }
  LargeFiles& large() { return large_; }
  MountMetadata& metadata() { return metadata_; }
  const MountMetadata& metadata() const { return metadata_; }
  const Tiers& tiers() const { return parts_.tiers; }
  // For a cache that has tiers.
  TierWriter tier_writer() { return {parts_.ram, parts_.tiers, parts_.rules.block}; }
  base::Stats& stats() { return parts_.stats(); }
  // For mappings of its file, and for reports.
  Region& region() { return parts_.region; }

  // Ends the thread that talks to the cluster; a later miss may start it anew. False: not within
  // this time.
  bool has_cluster_thread() const;
  bool stop_cluster(std::uint64_t at_most_ns);

  // A child of this process has ended. Names of this job are revalidated if it may have changed
  // some without telling: it has never attached. `pid` 0: it is not known which child.
  void note_child_ended(std::uint32_t pid);
  // The program is about to become another one.
  void note_exec();

  // At the end of the process.
  void detach();
  // In a forked child: takes the parent's mappings out of the way, by system calls alone. The
  // object is then dead.
  void abandon();
  // In any forked child: another thread of the parent may have been attaching.
  static void forget_attaching() { close_life_lock_after_fork(); }
  // In any forked child, before anything of its open files is ended: what is being filled is the
  // parent's.
  static void forget_fills();
  // Caches that are done with are never freed (a fork may have left the allocator locked). They are
  // chained, for a leak checker takes what nothing points at for the program's leak.
  FileCache* former = nullptr;

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
